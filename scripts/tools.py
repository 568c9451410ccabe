"""Makes the page of the commands that were tried, from `docs/tools.yaml`.

`python -m tests.matrix` writes the data file. `python -m scripts.reference` writes the page.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

DATA = Path(__file__).parents[1] / "docs" / "tools.yaml"
EQUAL, NOT_INSTALLED = "equal", "not installed"
#: In the order in which they are counted.
WORDS = (EQUAL, "waits", "fails", "stopped", "differs")

_HEAD = """# Tools

This page is for you if you want to know whether a program can read or write a stream.
Each case is one command under one rule, compared with its run without StreamFlow-IO.

{summary}

| result | meaning |
|---|---|
| equal | output, files and exit code are the same |
| waits | equal, but the program gets the whole file, for example because it asks by path for the size |
| fails | the program ends with an error; nothing is committed |
| stopped | `sfio-node` ends the job with code 75 and says why; nothing is committed |
| differs | the program succeeds with another result: do not declare this input `streamable` |

| rule | how the command gets or gives the data |
|---|---|
| FIFO, stdin | a byte stream of a file that is declared `streamable` on both ends |
| gate | the program starts with its producer, and is held at files that are not committed |
| update, no_update | a directory at the gate, with this `mode` |
| net | a byte stream of an input without a declaration, as with [`streaming: auto`](streaming-without-hints.md) |
| limited, limited storage | an I/O task [paused](storage.md#limited-no-faster-than-that) by bytes of system calls, or \
by bytes that the kernel writes |

`on_termination`, `on_close` and `on_n_files` are [commit rules](hints.md#sfiostreaming). A program that fails or
differs under the net asks its open file for size or type. `streaming: auto` finds that out by a rehearsal, and never
streams this input. `python -m tests.matrix` runs all cases, and has the full command lines.
"""


@dataclass(frozen=True)
class Section:
    """The commands of one kind.

    :ivar results: for each command the result under each rule: one of the words, and after a colon the reason
    """

    title: str
    rules: tuple[str, ...]
    results: Mapping[str, Mapping[str, str]]

    def column(self, rule: str) -> tuple[str, ...]:
        """The results under one rule, command by command."""
        return tuple(each[rule] for each in self.results.values())


def read() -> list[Section]:
    """The sections of the data file. A rule that the file leaves out for a command is `equal`."""
    found = YAML(typ="safe", pure=True).load(DATA)
    return [
        Section(
            title,
            tuple(part["rules"]),
            {name: {rule: seen.get(rule, EQUAL) for rule in part["rules"]} for name, seen in part["commands"].items()},
        )
        for title, part in found.items()
    ]


def write(sections: Sequence[Section]) -> None:
    """Write the data file."""
    yaml = YAML()
    yaml.width = 1000
    data = {
        section.title: {
            "rules": [*section.rules],
            "commands": {
                name: {rule: result for rule, result in results.items() if result != EQUAL}
                for name, results in section.results.items()
            },
        }
        for section in sections
    }
    with DATA.open("w", encoding="utf-8") as file:
        file.write("# Commands and their results under each rule, where a result is not `equal`.\n")
        file.write("# `python -m tests.matrix` writes this file.\n")
        yaml.dump(data, file)


def page() -> str:
    """The page."""
    sections = read()
    return _HEAD.format(summary=_summary(sections)) + "".join(map(_section, sections))


def _summary(sections: Sequence[Section]) -> str:
    results = [result.partition(":")[0] for each in sections for rule in each.rules for result in each.column(rule)]
    counts = Counter(results)
    counted = ", ".join(f"{counts[word]} {word}" for word in (*WORDS, NOT_INSTALLED) if counts[word])
    return f"{sum(len(each.results) for each in sections)} commands in {len(results):,} cases: {counted}."


def _section(section: Section) -> str:
    columns = {rule: section.column(rule) for rule in section.rules}
    same = [name for name, results in section.results.items() if {*results.values()} == {EQUAL}]
    lines = ["", f"## {section.title}", ""]
    if len(same) < len(section.results):
        lines += [*_table(section, columns, same), ""]
        if waiting := _waiting(section):
            lines += ["Waits under these other rules:", "", *_listed(waiting), ""]
    else:
        lines += [*_wrapped(f"Rules: {'; '.join(columns)}."), ""]
    return "\n".join([*lines, "Equal under every rule:", "", *_listed(same), ""])


def _table(section: Section, columns: Mapping[str, Sequence[str]], same: Sequence[str]) -> Iterator[str]:
    """Each command with several results. Rules with the same results share a column."""
    groups: dict[Sequence[str], list[str]] = {}
    for rule, column in columns.items():
        groups.setdefault(column, []).append(rule)
    equal = next((rules for column, rules in groups.items() if {*column} == {EQUAL}), [])
    shown = [rules for rules in groups.values() if rules is not equal]
    if equal:
        yield from (*_wrapped(f"All commands are equal under {'; '.join(equal)}."), "")
    waiting = _waiting(section)
    yield _row(["command", *("; ".join(rules) for rules in shown)])
    yield "|---" * (len(shown) + 1) + "|"
    for name, results in section.results.items():
        if name not in same and name not in waiting:
            yield _row([_code(name).replace("|", "\\|"), *(results[rules[0]] for rules in shown)])


def _waiting(section: Section) -> list[str]:
    """The commands that wait under each rule under which not all commands are equal."""
    rules = [rule for rule in section.rules if {*section.column(rule)} != {EQUAL}]
    return [name for name, results in section.results.items() if {results[rule] for rule in rules} == {"waits"}]


def _listed(names: Sequence[str]) -> list[str]:
    """The names in lines, where no line breaks inside a name."""
    joined = "; ".join(_code(name).replace(" ", "\0") for name in names)
    return [line.replace("\0", " ") for line in _wrapped(f"{joined}.")]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _code(name: str) -> str:
    return f"`{name}`"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
