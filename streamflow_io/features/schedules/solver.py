"""Linear programs that are changed and solved again, by HiGHS: Huangfu and Hall, *Parallelizing the dual revised
simplex method*, 2018. Imported only where schedules are polished: `highspy` is in the extra `schedule`.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np
from highspy._core import _Highs

_INFINITY = highspy.kHighsInf
_PRIMAL = 4
# A program that needs more takes longer than there is time.
_MOST_ITERATIONS = 25_000


class Solver:
    """A program: minimise the sum of costs x columns, columns >= 0, rows >= their least or equal to it.

    Rows and columns are added before the first solution or after it; then the solver begins with the last one.

    :ivar values: of the columns, in the last solution
    :ivar duals: of the rows: by how much the minimum grows with the least of the row
    """

    def __init__(self) -> None:
        # Not `highspy.Highs`: it prints a line before it can be told not to.
        self._highs = _Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("solver", "simplex"),
            # What is changed leaves the last solution allowed: the primal simplex goes on from there.
            ("simplex_strategy", _PRIMAL),
            ("simplex_iteration_limit", _MOST_ITERATIONS),
        ):
            self._highs.setOptionValue(option, value)
        self._rows: list[tuple[float, float]] = []
        self._columns: list[float] = []
        self._entries: list[list[tuple[int, float]]] = []
        self._is_passed = False
        self.values: list[float] = []
        self.duals: list[float] = []

    def add_row(self, least: float, entries: Sequence[tuple[int, float]] = (), *, is_equal: bool = False) -> int:
        """:param entries: columns and coefficients"""
        number = len(self._rows)
        self._rows.append((least, least if is_equal else _INFINITY))
        if self._is_passed:
            self._highs.addRow(*self._rows[-1], len(entries), *_arrays(entries))
        else:
            for column, coefficient in entries:
                self._entries[column].append((number, coefficient))
        return number

    def add_column(self, cost: float, entries: Sequence[tuple[int, float]]) -> int:
        """:param entries: rows and coefficients"""
        self._columns.append(cost)
        if self._is_passed:
            self._highs.addCol(cost, 0.0, _INFINITY, len(entries), *_arrays(entries))
        else:
            self._entries.append(list(entries))
        return len(self._columns) - 1

    def change(self, row: int, column: int, coefficient: float) -> None:
        """After the first solution."""
        self._highs.changeCoeff(row, column, coefficient)

    def allow(self, column: int, may: bool) -> None:
        """Whether a column may be above 0; after the first solution."""
        self._highs.changeColBounds(column, 0.0, _INFINITY if may else 0.0)

    def solve(self) -> bool:
        """:return: whether there is a solution, and it was found"""
        if not self._is_passed:
            self._pass()
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return False
        solution = self._highs.getSolution()
        self.values, self.duals = list(solution.col_value), list(solution.row_dual)
        return True

    def _pass(self) -> None:
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self._columns), len(self._rows)
        program.col_cost_ = np.array(self._columns, dtype=np.float64)
        program.col_lower_ = np.zeros(len(self._columns))
        program.col_upper_ = np.full(len(self._columns), _INFINITY)
        program.row_lower_ = np.array([least for least, _ in self._rows], dtype=np.float64)
        program.row_upper_ = np.array([most for _, most in self._rows], dtype=np.float64)
        matrix = program.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kColwise
        matrix.start_ = np.cumsum([0, *map(len, self._entries)], dtype=np.int32)
        rows, coefficients = _arrays([entry for entries in self._entries for entry in entries])
        matrix.index_, matrix.value_ = rows, coefficients
        self._highs.passModel(program)
        self._is_passed, self._entries = True, []


def _arrays(entries: Sequence[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([index for index, _ in entries], dtype=np.int32),
        np.array([coefficient for _, coefficient in entries], dtype=np.float64),
    )
