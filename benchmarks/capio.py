"""A pattern under CAPIO itself, where it is installed: large files, `on_close` and `update`.

With `no_update` CAPIO 1.0.0 gives readers that come before the first byte an end of file: their digests are wrong. And
files of directories that were made without its library end its server: there are none.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamflow_io.runtime.capio_installation import CapioError, find_capio

from .pattern_ways import Output, Pattern, outcome
from .processes import CommandError, run
from .workload import Outcome

_STARTED = "successfully started"
_START_SECONDS = 10.0
# A consumer of a file that never comes waits for ever.
_TIME_LIMIT = 120


def capio_missing() -> str | None:
    """Why CAPIO cannot be run here; none if it can."""
    try:
        find_capio()
    except CapioError as error:
        return str(error)
    return None


def run_capio(pattern: Pattern, directory: Path) -> Outcome:
    """All programs at once, with CAPIO's library preloaded and one server.

    :raises CommandError: if the server does not start, or a program fails or does not end
    """
    name = f"benchmark_{os.getpid()}"
    config = directory / "capio-cl.json"
    config.write_text(json.dumps(capio_cl(pattern, name, directory)), encoding="utf-8")
    environment = {"CAPIO_DIR": str(directory), "CAPIO_WORKFLOW_NAME": name}
    commands = []
    for number, command in enumerate(pattern.consumers):
        paths = (flat_path(directory, producer, output) for producer, output in pattern.inputs(command))
        commands.append([*_preloaded(f"consumer_{number}"), *command.command, *map(str, paths)])
    for number, producer in enumerate(pattern.producers):
        paths = (flat_path(directory, number, output) for output in pattern.outputs)
        commands.append([*_preloaded(f"producer_{number}"), *producer, *map(str, paths)])
    (programs := directory / "programs").mkdir()
    with _server(config, directory, environment):
        finished = run(commands, programs, environment)
    return outcome(pattern, finished.seconds, programs)


def flat_path(directory: Path, producer: int, output: Output) -> Path:
    """Where a producer writes an output: in the directory of the run itself."""
    return directory / f"producer.{producer}.{output.name}"


def capio_cl(pattern: Pattern, name: str, directory: Path) -> dict[str, object]:
    """The coordination of a pattern in CAPIO-CL 1.0."""
    graph: list[dict[str, object]] = []
    for number in range(len(pattern.producers)):
        paths = [str(flat_path(directory, number, output)) for output in pattern.outputs]
        rule = {"name": paths, "committed": "on_close", "mode": "update"}
        graph.append({"name": f"producer_{number}", "input_stream": [], "output_stream": paths, "streaming": [rule]})
    for number, consumer in enumerate(pattern.consumers):
        paths = [str(flat_path(directory, producer, output)) for producer, output in pattern.inputs(consumer)]
        graph.append({"name": f"consumer_{number}", "input_stream": paths, "output_stream": []})
    return {"name": name, "IO_Graph": graph}


def _preloaded(application: str) -> list[str]:
    """Only the final program has the library."""
    libraries = ":".join(map(str, find_capio().preloaded))
    return ["timeout", str(_TIME_LIMIT), "env", f"CAPIO_APP_NAME={application}", f"LD_PRELOAD={libraries}"]


@contextmanager
def _server(config: Path, directory: Path, environment: dict[str, str]) -> Iterator[None]:
    """CAPIO's server; with the context it ends, and what it has left in shared memory is removed."""
    log = directory / "capio-server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [find_capio().server, "-c", str(config)],
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while _STARTED not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise CommandError(f"CAPIO's server does not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.wait()
        for left in Path("/dev/shm").glob(f"*{environment['CAPIO_WORKFLOW_NAME']}*"):
            left.unlink(missing_ok=True)
