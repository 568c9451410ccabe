"""The tests of a checkout of the CWL conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML


@dataclass(frozen=True)
class Case:
    """One test.

    :ivar tool: the path of the process, perhaps with `#name`
    :ivar should_fail: whether the suite asks for a failure
    """

    name: str
    tool: str
    job: str | None = None
    should_fail: bool = False


def cases(directory: Path) -> list[Case]:
    """All tests of the suite, in its order.

    :raises OSError: if the directory holds no suite
    """
    return list(_cases(directory.resolve() / "conformance_tests.yaml"))


def _cases(file: Path) -> Iterator[Case]:
    for entry in YAML(typ="safe", pure=True).load(file):
        if "$import" in entry:
            yield from _cases(file.parent / entry["$import"])
        else:
            job = entry.get("job")
            yield Case(
                str(entry["id"]),
                str(file.parent / entry["tool"]),
                None if job is None else str(file.parent / job),
                bool(entry.get("should_fail")),
            )
