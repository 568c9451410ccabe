"""The programs of the matrix with CAPIO itself: python -m tests.features.capio.matrix [--only PATTERN] [--jobs N].

Each runs with plain StreamFlow, and with `runtime: capio`. Right is the same result, or a failure with a message where
the program fails with a stream, too. CAPIO is the one that is installed. Without `--only`, the
figures in docs/capio-runtime.md are written.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.cwl import Document, streamable, workflow
from lab.installed_capio import installed_capio
from lab.runs import Bench, Run
from tests.matrix.building import MissingError, Workshop
from tests.matrix.consumers import CONSUMERS
from tests.matrix.data import DATA
from tests.matrix.producers import PRODUCERS
from tests.matrix.programs import Consumer, Outcome, Producer

PYTHON = [os.path.realpath(sys.executable), "-ISc"]
#: CAPIO's library passes on in pieces what is written: with each half in one, readers come before the end. Scripts
#: can be executed.
WRITE = """
import os, sys, time
mode = os.stat(sys.argv[1]).st_mode & 0o777 | 0o666
data = open(sys.argv[1], 'rb').read()
with open(sys.argv[2], 'wb', buffering=0, opener=lambda path, flags: os.open(path, flags, mode)) as out:
    half = len(data) // 2
    for part in (data[:half], data[half:]):
        out.write(part)
        time.sleep(0.3)
"""
#: Programs get to CAPIO also where shells are kept off.
BECOME = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
#: The same for a program that puts something before the path of its input, which is absolute.
BECOME_NEAR = f"import os; os.environ['IN'] = os.path.relpath(os.environ['IN']); {BECOME}"
LIMIT = 60.0
#: In the warning of a run in which a program did nothing any more.
HUNG = "as if its program hung under CAPIO"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "capio-runtime.md"
KINDS = {Consumer: "reads", Producer: "writes"}

Program = Consumer | Producer


@dataclass(frozen=True)
class Seen:
    """How a program ended; in capitals: as it must not.

    :ivar seconds: of the run with CAPIO
    """

    outcome: str
    seconds: float
    said: str


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


def consuming(program: Consumer, workshop: Workshop) -> tuple[Document, Document]:
    """A producer that CAPIO serves, and the program as its reader."""
    data = workshop.input(program.data)
    first = tool([*PYTHON, WRITE, str(data), data.name], {}, {"out": streamable(outputBinding={"glob": data.name})}, {})
    stdin = {"stdin": "$(inputs.file.path)"} if program.stdin else {}
    become = BECOME_NEAR if "/$IN" in program.script else BECOME
    interpreter = [*PYTHON, become, *program.interpreter, program.script]
    named = {} if program.stdin else {"IN": "$(inputs.file.path)"}
    second = tool(
        interpreter,
        {"file": streamable()},
        {"out": "stdout"},
        {**variables(workshop), **named},
        stdout="printed",
        **stdin,
    )
    return first, second


def producing(program: Producer, workshop: Workshop) -> tuple[Document, Document]:
    """The program as a producer, and a reader that CAPIO serves."""
    workshop.input(program.data)
    # What makes the program slow elsewhere does not wait for this file.
    (go := workshop.data.parent / "go").touch()
    first = tool(
        [*PYTHON, BECOME, *program.interpreter, program.script.replace("out/", "./")],
        {},
        {"out": streamable(outputBinding={"glob": program.file})},
        {**variables(workshop), "GO": str(go)},
    )
    second = tool(
        [*PYTHON, BECOME, "sh", "-ec", program.then],
        {"file": streamable()},
        {"out": "stdout"},
        {**variables(workshop), "IN": "$(inputs.file.path)"},
        stdout="printed",
    )
    return first, second


def variables(workshop: Workshop) -> dict[str, str]:
    return {name: workshop.environment()[name] for name in ("PATH", "DATA", "SCALE", "LC_ALL", "TZ", "PYTHONUTF8")}


def joined(pairs: Sequence[tuple[Document, Document]]) -> Document:
    """A workflow of producers, each with its reader: of `a0` reads `b0`, of `a1` reads `b1`."""
    steps: Document = {}
    for number, (first, second) in enumerate(pairs):
        steps[f"a{number}"] = {"run": first, "in": {}}
        steps[f"b{number}"] = {"run": second, "in": {"file": f"a{number}/out"}}
    return workflow({}, steps, {name: f"{name}/out" for name in steps})


def prepare(program: Program, workshop: Workshop) -> tuple[Document, Document]:
    """:raises MissingError: when something is not installed."""
    for need in program.needs:
        workshop.tool(need)
    for need in ("slow", "reader", "writer"):
        with contextlib.suppress(MissingError, KeyError):
            workshop.tool(need)
    for name, built in DATA.items():
        if f"$DATA/{built.file}" in program.script:
            workshop.input(name)
    return consuming(program, workshop) if isinstance(program, Consumer) else producing(program, workshop)


def attempt_together(programs: Sequence[Program], workshop: Workshop, directory: Path) -> list[Seen]:
    """Try programs side by side in one run; each by itself that spoils it, or that it says nothing of."""
    seen: dict[Program, Seen] = {}
    pairs: dict[Program, tuple[Document, Document]] = {}
    for program in programs:
        try:
            pairs[program] = prepare(program, workshop)
        except MissingError as missing:
            seen[program] = Seen("not tried", 0.0, f"{missing} is not installed")
    left, turn = list(pairs), 0
    while len(left) > 1:
        turn += 1
        found = together([pairs[program] for program in left], directory / f"all{turn}")
        if not isinstance(found, set):
            seen |= zip(left, found, strict=True)
            break
        left = [program for number, program in enumerate(left) if found and number not in found]
    for number, program in enumerate(program for program in pairs if program not in seen):
        seen[program] = alone(program, pairs[program], directory / str(number))
    return [seen[program] for program in programs]


def together(pairs: Sequence[tuple[Document, Document]], directory: Path) -> list[Seen] | set[int]:
    """How programs end side by side; or which of them have spoiled it, none if that is not known."""
    directory.mkdir(parents=True)
    bench, document = Bench(directory), joined(pairs)
    try:
        plain = bench.run(document, io=False, seconds=4 * LIMIT)
        if not plain.ok:
            return failed(plain)
        began = time.monotonic()
        ours = bench.run(document, seconds=4 * LIMIT, config={"runtime": "capio"})
    except AssertionError:
        return set()
    seconds = time.monotonic() - began
    if not ours.ok:
        return failed(ours)
    if "CAPIO 1" not in ours.log or "any more in this run" in ours.log or bench.leftovers():
        return set()
    if different := {name for name, file in sums(plain).items() if sums(ours)[name] != file}:
        return {int(name[1:]) for name in different}
    return [
        Seen("without CAPIO" if (said := warnings(ours, number)) else "with CAPIO", seconds, said)
        for number in range(len(pairs))
    ]


def failed(run: Run) -> set[int]:
    """The pairs with a job that has failed."""
    return set(map(int, re.findall(r"FAILED Job /[ab](\d+)/", run.log)))


def sums(run: Run) -> dict[str, object]:
    """The sums of all files that it has made; files of one name have others in the directory of outputs."""
    return {name: (file["checksum"], file["size"]) for name, file in (run.outputs or {}).items()}


def warnings(run: Run, number: int | None = None) -> str:
    """The warnings of a run about the jobs of a pair, or all of its warnings."""
    lines = [line.partition("WARNING")[2].strip() for line in run.log.splitlines() if "WARNING" in line]
    if number is not None:
        lines = [line for line in lines if re.search(rf"/[ab]{number}\b", line) and "not used any more" in line]
    return "; ".join(lines)


def alone(program: Program, pair: tuple[Document, Document], directory: Path) -> Seen:
    """How one program ends."""
    directory.mkdir(parents=True)
    bench, document = Bench(directory), joined([pair])
    try:
        plain = bench.run(document, io=False)
    except AssertionError:
        return Seen("not tried", 0.0, "it takes too long here with plain StreamFlow")
    if not plain.ok:
        return Seen("not tried", 0.0, plain.errors[-300:])
    began = time.monotonic()
    try:
        ours = bench.run(document, seconds=LIMIT, config={"runtime": "capio"})
    except AssertionError as error:
        return Seen("HANGS", time.monotonic() - began, str(error)[-2000:])
    seconds, said = time.monotonic() - began, warnings(ours)
    if left := bench.leftovers():
        return Seen("LEFT", seconds, str(left))
    if not ours.ok:
        fails = program.stream.outcome in (Outcome.FAILS, Outcome.STOPPED)
        return Seen("fails" if fails else "FAILS", seconds, ours.errors[-1500:])
    if ours.results != plain.results and differs(placeless(ours), placeless(plain), bench, document):
        return Seen("unfit" if program.stream.outcome is Outcome.DIFFERS else "DIFFERS", seconds, said)
    if HUNG in ours.log:
        return Seen("hung", seconds, said)
    if "is not used any more" in ours.log:
        return Seen("without CAPIO", seconds, said)
    return Seen("with CAPIO" if "CAPIO 1" in ours.log else "embedded", seconds, said)


def placeless(run: Run) -> dict[str, bytes]:
    """The content that it has made, without the directories of its jobs, which some programs print."""
    return {name: re.sub(rb"/\S*/", b"", content) for name, content in run.files.items()}


def write_figures(seen: Mapping[Program, Seen]) -> None:
    """Write the results into the page: a row for each kind of program, if all of the kind were tried."""
    page = PAGE.read_text()
    for kind, what in KINDS.items():
        outcomes = [each.outcome for program, each in seen.items() if isinstance(program, kind)]
        if outcomes:
            page, count = re.subn(rf"(?m)^\| {what} \|.*$", row(what, outcomes), page)
            assert count == 1, f"{PAGE} has no row for {what}"
    PAGE.write_text(page)


def row(what: str, outcomes: Sequence[str]) -> str:
    """The figures of one kind of program, in the order of the columns of the page."""
    counts = Counter(outcomes)
    wrong = sum(count for outcome, count in counts.items() if outcome.isupper())
    without = counts["without CAPIO"] + counts["embedded"]
    figures = (
        counts["with CAPIO"],
        without,
        counts["hung"],
        counts["unfit"],
        counts["fails"],
        counts["not tried"],
        wrong,
    )
    return f"| {what} | {' | '.join(map(str, (len(outcomes), *figures)))} |"


def differs(ours: dict[str, bytes], plain: dict[str, bytes], bench: Bench, document: Document) -> bool:
    """Whether something differs that does not differ from one plain run to the next, as what tells the time does."""
    if ours == plain:
        return False
    again = placeless(bench.run(document, io=False))
    return any(ours.get(name) != content for name, content in plain.items() if again.get(name) == content)


def main() -> int:
    """Returns 0 when no result is another, and nothing hangs."""
    parser = argparse.ArgumentParser(prog="python -m tests.features.capio.matrix", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression for the name of a program")
    parser.add_argument("--kind", choices=["Consumer", "Producer"], help="these only")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time (default: %(default)s)")
    parser.add_argument("--together", type=int, default=6, help="programs in one run (default: %(default)s)")
    arguments = parser.parse_args()
    if (home := installed_capio()) is None:
        print("CAPIO is not installed")
        return 0
    os.environ["CAPIO_HOME"] = str(home)
    programs = [each for each in (*CONSUMERS, *PRODUCERS) if re.search(arguments.only, each.name)]
    programs = [each for each in programs if arguments.kind in (None, type(each).__name__)]
    groups = [programs[first : first + arguments.together] for first in range(0, len(programs), arguments.together)]
    seen: dict[Program, Seen] = {}
    with tempfile.TemporaryDirectory(prefix="cm-") as scratch, ThreadPoolExecutor(arguments.jobs) as pool:
        workshop = Workshop(Path(scratch, "w"))

        def try_group(number: int) -> None:
            found = attempt_together(groups[number], workshop, Path(scratch, str(number)))
            for program, each in zip(groups[number], found, strict=True):
                seen[program] = each
                said = " ".join(each.said.split())
                kind = type(program).__name__
                print(f"{each.outcome:14}{each.seconds:6.1f} s  {kind} {program.name}: {said}", flush=True)
            shutil.rmtree(Path(scratch, str(number)), ignore_errors=True)

        list(pool.map(try_group, range(len(groups))))
    print(dict(Counter(each.outcome for each in seen.values())))
    if not arguments.only:
        write_figures(seen)
    return 1 if any(each.outcome.isupper() for each in seen.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
