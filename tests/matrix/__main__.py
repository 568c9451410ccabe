"""Runs the whole matrix and writes docs/tools.yaml: python -m tests.matrix [--only PATTERN]."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.tools import write
from tests.matrix.building import MissingError, Workshop
from tests.matrix.page import Seen, sections
from tests.matrix.programs import Case, Outcome, cases
from tests.matrix.running import Observation, observe
from tests.matrix.table import PROGRAMS


def attempt(workshop: Workshop, chosen: list[Case], base: Path) -> list[Observation | None]:
    """Runs one program under the chosen rules; None where something is missing on this machine."""
    try:
        return [*observe(workshop, chosen, base)]
    except MissingError as missing:
        print(f"{chosen[0].program.name}: {missing} is not installed", flush=True)
        return [None] * len(chosen)
    except AssertionError as error:
        return [Observation(Outcome.ERROR, str(error))] * len(chosen)


def wanted(pattern: str) -> list[list[Case]]:
    """Returns the cases whose name matches, program by program."""
    found = [[case for case in cases((program,)) if re.search(pattern, str(case))] for program in PROGRAMS]
    return [chosen for chosen in found if chosen]


def main() -> int:
    """Returns 0 when all is as the table says."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression for 'KIND NAME, RULE'; no data are written")
    parser.add_argument("--scale", type=int, default=1, help="data are so much larger")
    arguments = parser.parse_args()
    chosen = wanted(arguments.only)
    seen: Seen = {}
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch, ThreadPoolExecutor(2) as pool:
        workshop = Workshop(Path(scratch), arguments.scale)
        bases = [Path(scratch, str(number)) for number in range(len(chosen))]
        for part, found in zip(chosen, pool.map(lambda a, b: attempt(workshop, a, b), chosen, bases), strict=True):
            for case, observation in zip(part, found, strict=True):
                seen[case] = observation
                if observation and not case.expected.allows(observation.outcome):
                    wrong += 1
                    said = f"{observation.outcome.value} instead of {case.expected.outcome.value}"
                    print(f"{case}: {said}: {observation.detail}", flush=True)
    print(f"{len(seen)} cases of {len(chosen)} programs; {wrong} are not as the table says")
    if not arguments.only:
        write(sections(seen))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
