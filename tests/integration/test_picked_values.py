"""Steps with `when`, and `pickValue` behind them: whether there is an output is known before its job starts."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench

# Ends when something has been read of it, if it streams.
SLOW = """
{
  echo line 1
  i=0; until [ -z "$SFIO_JOB" ] || [ $i = 300 ] || grep -q "read line 1" "$TRACE"; do i=$((i+1)); sleep 0.1; done
  echo line 2
} > $name.txt
note $name end"""
READ = 'for file in "$@"; do while read line; do note read $line; echo "$line"; done < "$file"; done; note done'
STREAMED = ("streamable", {})
COMMITTED = ("rule", {"committed": "on_close"})


def maker(how: tuple[str, Document]) -> Document:
    kind, fields = how
    out = found("$(inputs.name).txt", **({"streamable": True} if kind == "streamable" else {}))
    hints = [streaming({"port": "out", **fields})] if kind == "rule" else []
    return tool(SLOW, {"name": "string", "sure": "boolean"}, {"out": out}, hints)


def reader(kind: Any) -> Document:
    file = streamable(kind, inputBinding={"position": 1})
    return tool(READ, {}, {"out": "stdout"}, stdout="read.txt") | {
        "inputs": {"file": file, "trace": "string"},
        "arguments": ["sh"],
    }


def optional_steps(how: tuple[str, Document], kind: Any, link: Document, *sure: bool) -> Document:
    """Steps that run if asked, and one that reads what they make, or the input of the workflow."""
    makers = {
        name: {
            "run": maker(how),
            "in": {"name": {"default": name}, "sure": {"default": is_sure}},
            "when": "$(inputs.sure)",
        }
        for name, is_sure in zip("abc", sure, strict=False)
    }
    sources = [*(f"{name}/out" for name in makers), *(["raw"] if "pickValue" in link else [])]
    read = {"run": reader(kind), "in": {"file": {"source": sources if link else sources[0], **link}}}
    return workflow({"raw": "File"}, {**makers, "read": read}, {"out": "read/out"})


@pytest.fixture
def job(tmp_path: Any) -> Document:
    (tmp_path / "raw.txt").write_text("raw\n")
    return {"raw": {"class": "File", "path": str(tmp_path / "raw.txt")}}


@pytest.mark.parametrize(
    ("kind", "link", "sure"),
    [
        ("File", {"pickValue": "first_non_null"}, (False, True)),
        pytest.param("File", {"pickValue": "first_non_null"}, (True, True), marks=pytest.mark.long),
        pytest.param("File", {"pickValue": "first_non_null"}, (False,), marks=pytest.mark.long),
        ("File[]", {"pickValue": "all_non_null"}, (True, False)),
        pytest.param("File?", {}, (True,), marks=pytest.mark.long),
        ("File?", {}, (False,)),
    ],
)
@pytest.mark.parametrize("how", [STREAMED, pytest.param(COMMITTED, marks=pytest.mark.long)])
def test_what_is_picked_of_optional_steps(
    bench: Bench, job: Document, how: tuple[str, Document], kind: Any, link: Document, sure: tuple[bool, ...]
) -> None:
    _, ours = bench.run_both(optional_steps(how, kind, link, *sure), job)
    # The first that runs is read before it has ended.
    first = next((name for name, is_sure in zip("abc", sure, strict=False) if is_sure), None)
    if first is not None and how == STREAMED:
        assert ours.time("read line 1") < ours.time(f"{first} end")
