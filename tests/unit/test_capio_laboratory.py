"""CAPIO is built, or it is said why not, and nothing is left of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from laboratories import capio
from laboratories.laboratory import LaboratoryError
from tests.node_support import wait_for


@pytest.mark.parametrize(
    ("script", "seconds", "message"),
    [("echo no sources; exit 1", 60.0, "no sources"), ("sleep 97531 & wait", 0.3, "cannot be built in 0 s")],
)
def test_a_build_that_fails(
    script: str, seconds: float, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "capio.sh").write_text(script)
    monkeypatch.setattr(capio, "_SCRIPT", tmp_path / "capio.sh")
    monkeypatch.setattr(capio, "_BUILD_SECONDS", seconds)
    monkeypatch.setattr(capio, "missing", lambda: None)
    with pytest.raises(LaboratoryError, match=message):
        capio.build(tmp_path / "prefix")
    assert not (tmp_path / "prefix").exists()
    commands = [path / "cmdline" for path in Path("/proc").iterdir() if path.name.isdigit()]
    wait_for(lambda: not any(b"97531" in _read(path) for path in commands), "the end of what the build has started")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_without_sources_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SFIO_TEST_CAPIO_HOME", "CAPIO_HOME", "CAPIO_SOURCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaboratoryError, match="CAPIO_SOURCES names no sources"):
        capio.home()
