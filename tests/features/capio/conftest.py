from __future__ import annotations

from pathlib import Path

import pytest

from tests import forked
from tests.cwl import Bench


@pytest.fixture(scope="session")
def prepared() -> None:
    forked.prepare()


@pytest.fixture
def bench(prepared: None, tmp_path: Path) -> Bench:
    return Bench(tmp_path)
