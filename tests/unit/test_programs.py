"""The programs that a tool names, and whether they are other ones elsewhere; and tools that may use the network."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamflow_io.engine.tool_contents import networked, tool_contents
from streamflow_io.hints.cwl import load, read_steps
from streamflow_io.jobs import programs as module
from streamflow_io.jobs.programs import differing, stamps_here
from streamflow_io.runtime.node_commands import NodeRuntimeError

TOOL: dict[str, Any] = {
    "class": "CommandLineTool",
    "baseCommand": ["cat", "-n", "no.such.program", "two words", "$(inputs.x)", "scripts/here"],
    "arguments": ["/no/such file", "/no/such"],
    "inputs": {},
    "outputs": {},
}
NETWORK = {"class": "NetworkAccess", "networkAccess": True}


def loaded(directory: Path, *tools: dict[str, Any], **fields: Any) -> Any:
    steps = {f"s{number}": {"run": each, "in": {}, "out": []} for number, each in enumerate(tools)}
    document = {"cwlVersion": "v1.2", "class": "Workflow", "inputs": {}, "outputs": {}, "steps": steps, **fields}
    (directory / "main.cwl").write_text(json.dumps(document))
    return load(str(directory / "main.cwl"))


def stamp(path: str) -> tuple[int, int, str]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, ""


@pytest.fixture
def without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFIO_NODE", "/no/such")


@pytest.mark.usefixtures("without_libraries")
def test_what_may_be_a_program(tmp_path: Path) -> None:
    cat = shutil.which("cat")
    assert cat is not None
    found = tool_contents(read_steps(loaded(tmp_path, TOOL)), ["/s0"])["/s0"].programs
    words = ("cat", "no.such.program", "two", "words", "/no/such", "file")
    assert [word for word, _ in found] == [*words]
    assert dict(found)["cat"] == stamp(cat)
    assert dict(found)["/no/such"] is None


@pytest.mark.usefixtures("without_libraries")
def test_programs_in_a_line_for_the_shell(tmp_path: Path) -> None:
    line = {"shellQuote": False, "valueFrom": "wc -l < $(inputs.data.path) | A=/no/such sort"}
    tool = {**TOOL, "requirements": [{"class": "ShellCommandRequirement"}], "baseCommand": [], "arguments": [line]}
    found = tool_contents(read_steps(loaded(tmp_path, tool)), ["/s0"])["/s0"].programs
    assert [word for word, _ in found] == ["wc", "A", "/no/such", "sort"]


def test_which_tools_may_use_the_network(tmp_path: Path) -> None:
    tools = [
        TOOL,
        {**TOOL, "requirements": [NETWORK]},
        {**TOOL, "hints": [{**NETWORK, "networkAccess": "$(inputs.x)"}]},
        {**TOOL, "requirements": [{**NETWORK, "networkAccess": False}]},
    ]
    steps = [f"/s{number}" for number in range(len(tools))]
    assert networked(read_steps(loaded(tmp_path, *tools)), steps) == {"/s1", "/s2"}
    assert networked(read_steps(loaded(tmp_path, *tools, hints=[NETWORK])), steps) == set(steps)
    assert networked(read_steps(loaded(tmp_path, TOOL)), ["/s0"], [NETWORK]) == {"/s0"}


@pytest.mark.usefixtures("without_libraries")
def test_files_of_any_name_are_known(tmp_path: Path) -> None:
    words = [str(tmp_path / name) for name in ("a\nb", "\udcff", "c" * 250, "d")]
    for word in words:
        Path(word).touch()
    assert stamps_here([*words, "no such", "x" * 5000, "a\0b"]) == {
        **{word: stamp(word) for word in words},
        **dict.fromkeys(["no such", "x" * 5000, "a\0b"]),
    }


def test_which_are_others() -> None:
    def said(size: int, loads: str = "5d") -> str:
        return json.dumps({"size": size, "mtime": 3, "loads": loads})

    here = ("a", (9, 3, "5d")), ("b", None)
    assert differing(here, f"{said(9)}\n-") == ()
    assert differing(here, f"{said(8)}\n-") == (("a", (8, 3, "5d")),)
    assert differing(here, f"{said(9, '6e')}\n-") == (("a", (9, 3, "6e")),)
    assert differing(here, f"-\n{said(8)}") == (("a", None), ("b", (8, 3, "5d")))
    assert differing(here, "-\n-") is None, "its programs are not known there"
    assert differing(here, "-") is differing(here, "sh: not found\n-") is None


def test_where_nobody_answers_nothing_is_known() -> None:
    class Silent:
        is_here = False
        binary = "sfio-node"

        async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
            raise NodeRuntimeError("it is gone")

    async def ask() -> object:
        programs: Any = module.Programs()
        found = [await programs.of(Silent(), words) for words in ((("a", None),), ())]
        await programs.close()
        return found

    assert asyncio.run(ask()) == [None, None]
