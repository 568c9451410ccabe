"""Words for people."""

from __future__ import annotations

import pytest

from streamflow_io.wording import first_of


@pytest.mark.parametrize(
    ("count", "expected"), [(0, ""), (1, "0"), (2, "0, 1"), (3, "0, 1 and 1 more"), (2002, "0, 1 and 2,000 more")]
)
def test_the_first_of_a_list(count: int, expected: str) -> None:
    assert first_of([str(number) for number in range(count)], 2) == expected
