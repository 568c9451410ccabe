"""Numbers in messages have the right noun."""

from __future__ import annotations

import pytest

from streamflow_io.wording import counted, how_often


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 jobs"), (1, "1 job"), (1.0, "1 job"), (0.5, "0.5 jobs"), (2, "2 jobs"), (1400, "1,400 jobs")],
)
def test_a_number_with_its_noun(number: float, text: str) -> None:
    assert counted(number, "job") == text


def test_how_often() -> None:
    assert [how_often(number) for number in (0, 1, 2, 1400)] == ["0 times", "once", "2 times", "1,400 times"]
