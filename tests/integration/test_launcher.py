"""The script of `streamflow-io coordination --script`, with CAPIO itself where it is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from laboratories import capio
from laboratories.laboratory import LaboratoryError
from streamflow_io.cli import main
from tests.cwl import Bench, found, streaming, tool, workflow
from tests.node_support import wait_for

LINES = 5000
WRITE = f"""
import time
with open("out.txt", "w") as out:
    for number in range({LINES}):
        print("line", number, file=out)
"""
READ = "open('n.txt', 'w').write(str(len(open('../a/out.txt').read())))"


@pytest.mark.timeout(120)
def test_programs_under_the_real_capio_without_streamflow(bench: Bench, tmp_path: Path) -> None:
    """The reader comes first; it waits, and has all."""
    try:
        home = capio.home()
    except LaboratoryError as error:
        pytest.skip(f"no CAPIO: {error}")
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
    environment = {**os.environ, "CAPIO_HOME": str(home)}
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(["sh", script, "server"], env=environment, stdout=output, stderr=output)

    def started(application: str, *command: str) -> subprocess.Popen[bytes]:
        words = ["sh", str(script), "run", application, *command]
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE)

    try:
        wait_for(lambda: "successfully started" in log.read_text(), "the server")
        reader = started("b", sys.executable, "-ISc", READ)
        writer = started("a", sys.executable, "-ISc", WRITE)
        assert (writer.wait(40), reader.wait(40)) == (0, 0)
        size = sum(len(f"line {number}\n") for number in range(LINES))
        assert started("b", "cat", "n.txt").communicate(timeout=20)[0] == str(size).encode()
        assert started("c", "true").wait(20) == 2
    finally:
        server.terminate()
        server.wait(20)
    assert list(Path("/dev/shm").glob(f"*{name}*")) == []
