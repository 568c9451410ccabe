"""The page docs/tools.md, from what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.matrix.programs import Case, Consumer, Filler, Outcome, Producer, Walker
from tests.matrix.running import Observation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tools.md"

Seen = dict[Case, Observation | None]

_HEAD = """# Tools

Real programs under each rule, and what came out, compared with their run without us. Made by `python -m tests.matrix`
from `tests/matrix/`, where the command of each program stands; do not edit it. What is said here is tested: a program
that does better fails the test, too.

Each producer is caught in the middle of its file. Behind a gate, the consumer is started before its producer. Under
`on_close` and `on_n_files`, the producer goes on running until its consumer has ended. Where it says
*limited*, the program is an I/O task with [`limited: true`](storage.md#limited-no-faster-than-that) and so low a
storageBW that it is paused in the middle of what it does: by what system calls move, or, *limited storage*, by what the
kernel writes.

| word | meaning |
|---|---|
| equal | output, files and exit code are those of the run without us |
| waits | equal, but the program asks by path for more than bytes, such as the size: it gets the whole file |
| fails | the program itself says an error, and exits with it; nothing is committed |
| stopped | `sfio-node` notices, ends the job (75) and says why; nothing is committed |
| differs | the program succeeds with another result: do not declare this input `streamable` |
| - | the program was not installed |

FIFO and stdin are byte streams, which only an input that is declared `streamable` gets; others wait behind the gate, or
start at the commit. *Net*: a stream [under the net](node-protocol.md#under-the-net), for an input of which nothing is
declared: a program waits there for the whole file, too, if it asks what it has open for more than a pipe has; what
differs, or fails, asks for its size or type. In a directory behind the gate, a file has one hard link more than
without us.

"""


def page(seen: Mapping[Case, Observation | None]) -> str:
    """Returns the page."""
    sections = [
        ("Programs that read a file", _select(seen, Consumer, False)),
        ("Programs that read their standard input", _select(seen, Consumer, True)),
        ("Programs that write a file", _select(seen, Producer)),
        ("Programs that read a directory", _select(seen, Walker)),
        ("Programs that write a directory", _select(seen, Filler)),
    ]
    return _HEAD + _summary(seen) + "\n".join(_section(title, part) for title, part in sections)


def _select(seen: Mapping[Case, Observation | None], kind: type, stdin: bool | None = None) -> Seen:
    def fits(case: Case) -> bool:
        program = case.program
        return isinstance(program, kind) and (not isinstance(program, Consumer) or program.stdin is stdin)

    return {case: observation for case, observation in seen.items() if fits(case)}


def _summary(seen: Mapping[Case, Observation | None]) -> str:
    outcomes = Counter(observation.outcome for observation in seen.values() if observation)
    programs = len({case.program for case, observation in seen.items() if observation})
    counted = ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcomes[outcome])
    return f"{programs} entries, {sum(outcomes.values())} cases: {counted}.\n\n"


def _section(title: str, seen: Seen) -> str:
    rules = list(dict.fromkeys(case.rule for case in seen))
    lines = [f"## {title}\n", _row(["program", *(rule.name for rule in rules)]), "|---" * (len(rules) + 1) + "|"]
    for program in dict.fromkeys(case.program for case in seen):
        cells = [_cell(case, seen[case]) for case in seen if case.program is program]
        lines.append(_row([f"`{program.name}`".replace("|", "\\|"), *cells]))
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(case: Case, observation: Observation | None) -> str:
    if observation is None:
        return "-"
    expected = case.expected
    if not expected.allows(observation.outcome):
        return f"{observation.outcome.value}: not as expected"
    return f"{expected.outcome.value}: {expected.because}" if expected.because else expected.outcome.value
