"""The fixtures of the core's integration tests, and a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.capio.stand_in.support import write_compiler
from tests.integration.conftest import _prepared, _schemas, bench

__all__ = ["_prepared", "_schemas", "bench"]


@pytest.fixture(scope="session")
def compiler(common: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_compiler(tmp_path_factory.mktemp("compiler"), common / "capio-guard")


@pytest.fixture(autouse=True)
def _compiler(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start of a server compiles the guard: the first one does so for all tests."""
    monkeypatch.setenv("PATH", str(compiler), prepend=":")
