"""Workloads of features: each folder here has those of the feature with its name, in `WORKLOADS`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from benchmarks.workload import Workload


def workloads_of_features() -> Iterator[Workload]:
    """All of them, in the order of the features."""
    for name in sorted(module.name for module in iter_modules(__path__)):
        yield from import_module(f"{__name__}.{name}").WORKLOADS
