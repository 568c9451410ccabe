"""`streamflow-io`: what holds for all its commands."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from lab.telemetry import learning_run
from streamflow_io.cli import COMMANDS, main, parser_of
from streamflow_io.commands.console import SafeConsole, say, table
from streamflow_io.records.writer import to_json

COMMAND = [sys.executable, "-m", "streamflow_io.cli"]
TOOL = """\
cwlVersion: v1.2
class: CommandLineTool
baseCommand: "true"
inputs: []
outputs: []
"""
STREAMFLOW_FILE = """\
version: v1.0
workflows: {one: {type: cwl, config: {file: tool.cwl}}}
scheduling: {scheduler: {type: sfio.io-aware, config: {}}}
"""
ARGUMENTS = {
    "validate": ["tool.cwl"],
    "plan": ["streamflow.yml"],
    "doctor": [],
    "storage": ["probe", "missing"],
    "watch": ["telemetry.jsonl"],
    "runs": [],
    "logs": ["telemetry.jsonl"],
    "report": ["telemetry.jsonl", "-o", "report.html"],
    "suggest": ["telemetry.jsonl"],
    "bandwidth": ["telemetry.jsonl"],
    "clean": ["--dry-run"],
    "learned": ["list"],
    "explain": ["SFIO-S001"],
    "coordination": ["streamflow.yml"],
}
#: Commands that have commands of their own.
ACTIONS = {
    "storage": ("probe", "share"),
    "learned": ("list", "show", "forget", "export"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tool.cwl").write_text(TOOL)
    (tmp_path / "streamflow.yml").write_text(STREAMFLOW_FILE)
    lines = (to_json(record).decode() for record in learning_run())
    (tmp_path / "telemetry.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_all_commands_are_here() -> None:
    assert list(ARGUMENTS) == [name for name, entry in COMMANDS.items() if entry.package == "streamflow_io.commands"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        # All commands print in one place, and each takes as long as an interpreter to start.
        ("runs", []),
        *(pytest.param(name, ["--json"], marks=pytest.mark.long) for name in ARGUMENTS),
        pytest.param("validate", ["--help"], marks=pytest.mark.long),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_commands_end_quietly_when_their_output_is_closed(directory: Path, name: str, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "XDG_DATA_HOME": str(directory)}
    environment.pop("PYTHONUNBUFFERED", None)  # What fails at the end of the interpreter is harder.
    try:
        ended = subprocess.run(
            [*COMMAND, name, *ARGUMENTS[name], *arguments], stdout=writer, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60, cwd=directory, env=environment,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert ended.returncode == 1
    # A mistake is told beside the output.
    assert ended.stderr == "" or "\n  allowed: " in ended.stderr
    assert "Error" not in ended.stderr


def test_a_command_without_standard_output(directory: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "explain", "SFIO-S001"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60, cwd=directory)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_help_fits_a_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = [(), *((name,) for name in COMMANDS)]
    commands += [(name, action) for name in COMMANDS for action in actions_of(name)]
    for words in commands:
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 24, words
        assert max(map(len, lines)) <= 80, words
        assert len(words) != 1 or f"  streamflow-io {' '.join(words)}" in "\n".join(lines)


def actions_of(command: str) -> list[str]:
    """The actions of a command, such as `probe` of `storage`."""
    inner = [action for action in parser_of([command])[0]._actions if isinstance(action, argparse._SubParsersAction)]
    found = inner[0].choices[command]._actions
    return [name for each in found if isinstance(each, argparse._SubParsersAction) for name in each.choices]


def test_actions_of_commands_are_here() -> None:
    for command, actions in ACTIONS.items():
        assert actions_of(command) == list(actions)


def test_a_code_is_taken_as_it_is_copied(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "[SFIO-S001]"]) == 0
    whole = capsys.readouterr().out
    assert main(["explain", "s001"]) == 0
    assert capsys.readouterr().out == whole
    with pytest.raises(SystemExit) as refused:
        main(["explain", "SFIO-X001"])
    assert refused.value.code == 2
    assert "'SFIO-X001' is no code; `streamflow-io explain` lists them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        (["plan", "streamflow.yml"], STREAMFLOW_FILE + "made: 2026-13-45\n", "month must be in 1..12"),
        (["plan", "streamflow.yml"], STREAMFLOW_FILE.replace("{}", '{annotations: "a\\0b"}'), "has a null character"),
        (["plan", "streamflow.yml"], STREAMFLOW_FILE.replace("{}", f"{{observe: {'x' * 9999}}}"), "is not allowed"),
        (
            ["plan", "streamflow.yml"],
            STREAMFLOW_FILE.replace("tool.cwl", "tool.cwl, settings: job.yml"),
            "there is no such file",
        ),
        (["report", "x" * 5000], "", "there is no run in"),
        (["report", "a\0b"], "", "there is no run in"),
    ],
)
def test_a_mistake_gets_one_message_beside_the_output(
    directory: Path,
    arguments: list[str],
    content: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(directory)
    monkeypatch.setenv("XDG_DATA_HOME", str(directory))
    (directory / "streamflow.yml").write_text(content)
    assert main(arguments) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert message in errors
    assert len(errors) < 2000


def test_what_others_wrote_is_shown_without_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    console = SafeConsole(force_terminal=True, width=40)
    evil = "\x1b]0;title\x07 \x9b31m"
    say(console, evil, "bold")
    console.print(table(evil, ("a",), [(Text(evil, "bold"),), (evil,)]))
    printed = capsys.readouterr().out
    own = re.compile(r"\x1b\[[0-9;]*m")
    assert own.search(printed)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", own.sub("", printed))
