"""A scatter whose files fill a disk: the cost of a limit at half of the space that all files need.

Removal alone stays below this limit. So another limit is lower than what removal alone needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .intermediates import measured
from .model import Comparison
from .workflows import streamflow, tool, workflow, write_workflow
from .workload import Variant, Workload

_JOBS = 64
_MB = 16
_SECONDS = 0.5
_LIMIT_MB = _JOBS * _MB // 2
_LOW_LIMIT_MB = 3 * _MB
_ELEMENT, _FILE = {"number": "int"}, {"file": "File"}


def _scatter(path: Path) -> Path:
    """Write a workflow in which each element writes a file, and then counts its bytes."""
    script = f"sleep {_SECONDS}; head -c {_MB}000000 /dev/zero"
    write = tool(["sh", "-c", script], _ELEMENT, {"file": "stdout"}, stdout="$(inputs.number).bin")
    count = tool(["wc", "-c"], _FILE, {"count": "stdout"}, stdin="$(inputs.file.path)", stdout="count.txt")
    element = workflow(
        _ELEMENT,
        {"count": {"type": "File", "outputSource": "count/count"}},
        {
            "write": {"run": write, "in": {"number": "number"}, "out": ["file"]},
            "count": {"run": count, "in": {"file": "write/file"}, "out": ["count"]},
        },
    )
    return write_workflow(
        path,
        {"numbers": {"type": "int[]", "default": list(range(_JOBS))}},
        {"counts": {"type": "File[]", "outputSource": "element/count"}},
        {"element": {"run": element, "scatter": "number", "in": {"number": "numbers"}, "out": ["count"]}},
    )


def _prepare(directory: Path) -> Sequence[Variant]:
    path = _scatter(directory / "scatter.cwl")
    limits = [
        {"intermediates": "remove", "diskLimit": f"{limit}MB", "learned": str(directory / f"learned-{limit}.db")}
        for limit in (_LIMIT_MB, _LOW_LIMIT_MB)
    ]
    ways = (
        streamflow("keep", path, {}),
        streamflow("remove", path, {"intermediates": "remove"}),
        streamflow("limit", path, limits[0]),
        streamflow("low limit", path, limits[1]),
    )
    return [replace(way, run=measured(way.run)) for way in ways]


DISK_LIMIT = Workload(
    "disk-limit",
    f"{_JOBS} jobs write {_MB} MB each; diskLimit: {_LIMIT_MB} MB, and {_LOW_LIMIT_MB} MB",
    _prepare,
    (
        Comparison(name="limit / keep", variant="limit", baseline="keep", at_most=1.10),
        Comparison(name="limit / remove", variant="limit", baseline="remove"),
        Comparison(
            name="largest intermediate files, limit, MB", measure="peak_mb", variant="limit", at_most=float(_LIMIT_MB)
        ),
        Comparison(
            name="largest intermediate files, low limit, MB",
            measure="peak_mb",
            variant="low limit",
            at_most=float(_LOW_LIMIT_MB),
        ),
        Comparison(name="largest intermediate files, remove, MB", measure="peak_mb", variant="remove"),
        Comparison(name="largest intermediate files, keep, MB", measure="peak_mb", variant="keep"),
    ),
)
