"""The CWL conformance suite with a hint on every step, each kind of hint in turn: the results are plain StreamFlow's.

The kind `unhinted` has no hint: with `streaming: auto` each workflow runs three times, and all of them learn together.

What plain StreamFlow cannot do, and what the suite says should fail, has to fail with the hints, too. A difference,
failure, hang or leftover keeps its directory; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.random_workflows.trial import Trial

from .annotations import KINDS
from .suite import Case, cases
from .trial import run_case


def main() -> int:
    options = _options()
    wanted: frozenset[str] = frozenset(options.only)
    chosen = [case for case in cases(options.suite) if not wanted or case.name in wanted]
    if missing := wanted - {case.name for case in chosen}:
        sys.exit(f"no test of the suite: {', '.join(sorted(missing))}")
    directory: Path = options.directory or Path(tempfile.mkdtemp(prefix="sfio-conformance-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{len(chosen)} tests, in {directory}", flush=True)

    def try_case(case: Case) -> list[tuple[str, Trial]]:
        return list(run_case(directory / case.name, case, options.kinds, directory / "learned.db"))

    counted: Counter[tuple[str, str]] = Counter()
    harmless = True
    with ThreadPoolExecutor(options.jobs) as pool:
        for case, trials in zip(chosen, pool.map(try_case, chosen), strict=True):
            for kind, trial in trials:
                counted[kind, trial.outcome] += 1
                harmless &= trial.is_harmless
                if trial.outcome != "same" and not (trial.outcome == "both fail" and case.should_fail):
                    print(f"{case.name} ({kind}) {trial.outcome}: {trial.detail[-600:]}", flush=True)
    for (kind, outcome), count in sorted(counted.items()):
        print(f"{kind:10} {count:4} {outcome}")
    if harmless:
        shutil.rmtree(directory)
    return 0 if harmless else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", type=Path, metavar="DIRECTORY", help="a checkout of the suite")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--only", nargs="+", default=(), metavar="ID", help="these tests only")
    parser.add_argument("--jobs", type=int, default=2, help="tests at the same time (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where all of it happens (default: a temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
