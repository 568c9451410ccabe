"""The script of `streamflow-io coordination --script`, with CAPIO itself where it is installed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from lab.cwl import found, streaming, tool, workflow
from lab.installed_capio import use_installed_capio
from lab.node import wait_for
from lab.runs import Bench
from streamflow_io.cli import main
from streamflow_io.features.capio.coordination import write_launcher
from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile

LINES = 5000
WRITE = f"""
import time
with open("out.txt", "w") as out:
    for number in range({LINES}):
        print("line", number, file=out)
"""
READ = "open('n.txt', 'w').write(str(len(open('../a/out.txt').read())))"


@pytest.mark.timeout(300)
def test_programs_under_the_real_capio_without_streamflow(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader comes first; it waits, and has all."""
    use_installed_capio(monkeypatch)
    rule = streaming({"port": "out", "committed": "on_close", "mode": "no_update"})
    steps = {
        "a": {"run": tool("", {}, {"out": found("out.txt")}, [rule]), "in": {}},
        "b": {"run": tool("", {"file": "File"}, {"out": found("n.txt")}), "in": {"file": "a/out"}},
    }
    path = bench.write(workflow({}, steps, {"out": "b/out"}), {}, True, {})
    script, directory = tmp_path / "capio.sh", tmp_path / "d"
    arguments = ["--script", str(script), "--directory", str(directory), "-o", str(tmp_path / "capio.json")]
    name = f"test_{os.getpid()}"
    assert main(["coordination", str(path), *arguments]) == 0
    text = re.sub(r"CAPIO_WORKFLOW_NAME=\S+", f"CAPIO_WORKFLOW_NAME={name}", script.read_text(), count=1)
    script.write_text(re.sub(r'"name": "[^"]*"', f'"name": "{name}"', text, count=1))
    environment = dict(os.environ)
    for attempt in range(4):
        shutil.rmtree(directory, ignore_errors=True)
        try:
            run(script, environment, tmp_path / f"log{attempt}")
            return
        except subprocess.TimeoutExpired:  # Any program may hang under CAPIO 1.0.0, in some runs.
            continue
        finally:
            assert list(Path("/dev/shm").glob(f"*{name}*")) == []
    pytest.fail("it has hung four times")


@pytest.mark.parametrize(
    ("directory", "application"),
    [("align-0", "align"), ("align-report", "align-report"), ("align-all-1", "align-all"), ("align-allo", "align")],
)
def test_a_directory_belongs_to_the_application_with_the_name_that_fits_best(
    tmp_path: Path, directory: str, application: str
) -> None:
    """Steps `align` and `align-all` have instances of unknown number, and the step `align-report` has none."""
    paths = {"align-*/a": "align", "align-all-*/b": "align-all", "align-report/c": "align-report"}
    files = tuple(CoordinatedFile(path, producers=(app,)) for path, app in paths.items())
    (script := tmp_path / "capio.sh").write_text(write_launcher(Configuration("w", (), files), str(tmp_path)))
    says = ["sh", "-c", "echo $CAPIO_APP_NAME"]
    ended = subprocess.run(
        ["sh", script, "run", directory, *says],
        env={**os.environ, "CAPIO_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.strip() == application


def run(script: Path, environment: dict[str, str], log: Path) -> None:
    """Server, reader and writer, which must come to their ends with the right result."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str, output: IO[bytes] | int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        running.append(
            subprocess.Popen(["sh", str(script), *words], env=environment, stdout=output, start_new_session=True)
        )
        return running[-1]

    with log.open("wb") as output:
        start("server", output=output)
    try:
        wait_for(lambda: "successfully started" in log.read_text(), "the server")
        reader = start("run", "b", sys.executable, "-ISc", READ)
        writer = start("run", "a", sys.executable, "-ISc", WRITE)
        assert (writer.wait(20), reader.wait(20)) == (0, 0)
        size = sum(len(f"line {number}\n") for number in range(LINES))
        assert start("run", "b", "cat", "n.txt").communicate(timeout=20)[0] == str(size).encode()
        assert start("run", "c", "true").wait(20) == 2
    finally:
        for process in reversed(running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)
