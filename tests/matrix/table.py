"""The whole table."""

from __future__ import annotations

from tests.matrix.consumers import CONSUMERS
from tests.matrix.directories import FILLERS, WALKERS
from tests.matrix.producers import PRODUCERS
from tests.matrix.programs import Case, Program, cases

PROGRAMS: tuple[Program, ...] = (*CONSUMERS, *PRODUCERS, *WALKERS, *FILLERS)
CASES: list[Case] = cases(PROGRAMS)
