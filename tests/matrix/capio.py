"""The programs of the matrix with CAPIO itself: python -m tests.matrix.capio [--only PATTERN] [--jobs N].

Each runs with plain StreamFlow, and with `runtime: capio`. Right is the same result, or a failure with a message where
the program fails with a stream, too. CAPIO is the one of `laboratories.capio`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from laboratories import capio
from laboratories.laboratory import LaboratoryError
from tests.cwl import Bench, Document, Run, streamable, workflow
from tests.matrix.building import MissingError, Workshop
from tests.matrix.consumers import CONSUMERS
from tests.matrix.producers import PRODUCERS
from tests.matrix.programs import Consumer, Outcome, Producer

PYTHON = [os.path.realpath(sys.executable), "-ISc"]
#: CAPIO's library passes on in pieces what is written: with each half in one, readers come before the end.
WRITE = """
import sys, time
data = open(sys.argv[1], 'rb').read()
with open(sys.argv[2], 'wb', buffering=0) as out:
    half = len(data) // 2
    for part in (data[:half], data[half:]):
        out.write(part)
        time.sleep(0.3)
"""
#: Programs get to CAPIO also where shells are kept off.
BECOME = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
LIMIT = 60.0


def tool(
    command: list[str], inputs: Document, outputs: Document, environment: dict[str, str], **fields: object
) -> Document:
    variables = [{"envName": name, "envValue": value} for name, value in environment.items()]
    return {
        "class": "CommandLineTool",
        "baseCommand": command,
        "requirements": [{"class": "EnvVarRequirement", "envDef": variables}],
        "inputs": {**inputs, "trace": "string"},
        "outputs": outputs,
        **fields,
    }


def consuming(program: Consumer, workshop: Workshop) -> Document:
    """A producer that CAPIO serves, and the program as its reader."""
    data = workshop.input(program.data)
    variables = {name: workshop.environment()[name] for name in ("PATH", "DATA", "SCALE", "LC_ALL", "TZ", "PYTHONUTF8")}
    first = tool([*PYTHON, WRITE, str(data), data.name], {}, {"out": streamable(outputBinding={"glob": data.name})}, {})
    stdin = {"stdin": "$(inputs.file.path)"} if program.stdin else {}
    interpreter = [*PYTHON, BECOME, *program.interpreter, program.script]
    named = {} if program.stdin else {"IN": "$(inputs.file.path)"}
    second = tool(
        interpreter, {"file": streamable()}, {"out": "stdout"}, {**variables, **named}, stdout="printed", **stdin
    )
    return joined(first, second)


def producing(program: Producer, workshop: Workshop) -> Document:
    """The program as a producer, and a reader that CAPIO serves."""
    workshop.input(program.data)
    variables = {name: workshop.environment()[name] for name in ("PATH", "DATA", "SCALE", "LC_ALL", "TZ", "PYTHONUTF8")}
    script = program.script.replace("out/", "./")
    first = tool(
        [*PYTHON, BECOME, *program.interpreter, script],
        {},
        {"out": streamable(outputBinding={"glob": program.file})},
        variables,
    )
    second = tool(
        [*PYTHON, BECOME, "sh", "-ec", program.then],
        {"file": streamable()},
        {"out": "stdout"},
        {**variables, "IN": "$(inputs.file.path)"},
        stdout="printed",
    )
    return joined(first, second)


def joined(first: Document, second: Document) -> Document:
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"a": "a/out", "b": "b/out"})


def attempt(program: Consumer | Producer, workshop: Workshop, directory: Path) -> tuple[str, float, str]:
    """How it ends, in how many seconds, and what is said of it."""
    for need in program.needs:
        workshop.tool(need)
    for need in ("slow", "reader", "writer"):
        with contextlib.suppress(MissingError, KeyError):
            workshop.tool(need)
    directory.mkdir()
    bench = Bench(directory)
    make = consuming if isinstance(program, Consumer) else producing
    document = make(program, workshop)  # type: ignore[operator]
    try:
        plain = bench.run(document, io=False)
    except AssertionError:
        return "not tried", 0.0, "it takes too long here with plain StreamFlow"
    if not plain.ok:
        return "not tried", 0.0, plain.errors[-300:]
    began = time.monotonic()
    try:
        ours = bench.run(document, seconds=LIMIT, config={"runtime": "capio"})
    except AssertionError as error:
        return "HANGS", time.monotonic() - began, str(error)[-2000:]
    seconds = time.monotonic() - began
    warnings = "; ".join(line.partition("WARNING")[2].strip() for line in ours.log.splitlines() if "WARNING" in line)
    if left := bench.leftovers():
        return "LEFT", seconds, str(left)
    if not ours.ok:
        fails = program.stream.outcome in (Outcome.FAILS, Outcome.STOPPED)
        return "fails" if fails else "FAILS", seconds, ours.errors[-1500:]
    if ours.results != plain.results and placeless(ours) != placeless(plain):
        return "unfit" if program.stream.outcome is Outcome.DIFFERS else "DIFFERS", seconds, warnings
    if "is not used any more" in ours.log:
        return "without CAPIO", seconds, warnings
    return "with CAPIO" if "CAPIO 1" in ours.log else "embedded", seconds, warnings


def placeless(run: Run) -> dict[str, bytes]:
    """What it has made, without the directories of its jobs, which some programs print."""
    return {name: re.sub(rb"/\S*/", b"", content) for name, content in run.files.items()}


def main() -> int:
    """Returns 0 when no result is another, and nothing hangs."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.capio", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression for the name of a program")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    try:
        os.environ["CAPIO_HOME"] = str(capio.home())
    except LaboratoryError as error:
        print(f"no CAPIO: {error}")
        return 0
    programs = [each for each in (*CONSUMERS, *PRODUCERS) if re.search(arguments.only, each.name)]
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cm-") as scratch, ThreadPoolExecutor(arguments.jobs) as pool:
        workshop = Workshop(Path(scratch, "w"))

        def one(number: int) -> None:
            program = programs[number]
            try:
                outcome, seconds, said = attempt(program, workshop, Path(scratch, str(number)))
            except MissingError as missing:
                outcome, seconds, said = "not tried", 0.0, f"{missing} is not installed"
            seen[outcome] += 1
            with io.StringIO() as line:
                print(
                    f"{outcome:14}{seconds:6.1f} s  {type(program).__name__} {program.name}: {said}", file=line, end=""
                )
                print(line.getvalue().replace("\n", " "), flush=True)

        list(pool.map(one, range(len(programs))))
    print(dict(seen))
    return 1 if any(outcome.isupper() for outcome in seen) else 0


if __name__ == "__main__":
    sys.exit(main())
