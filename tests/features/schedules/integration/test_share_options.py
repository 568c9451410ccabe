"""`streamflow-io storage share` for runs that follow schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamflow_io.cli import main
from streamflow_io.storage.sharing.entries import LedgerFile


def test_a_shared_directory_has_the_curve_of_its_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert main(["storage", "share", str(tmp_path / "bad"), "--write", "9", *words]) == 1
        return capsys.readouterr().err

    group = tmp_path / "group"
    words = ("--write", "9", "--holds", "auto", "--curve", "1:5.5,4:12.3")
    assert main(["storage", "share", str(group), *words]) == 0
    ledger = LedgerFile.model_validate_json((group / "ledger.json").read_text())
    curve = [[1, 5.5], [4, 12.3]]
    assert (ledger.holds, ledger.model_extra) == ("auto", {"curve": {"write": curve, "read": curve}})
    assert (group / "plans").is_dir()
    assert "allowed: with --holds auto" in said("--curve", "1:5")
    assert "'x' is no file, and no point" in said("--holds", "auto", "--curve", "x")
    assert "it is too large: 1 points, up to 2000000 jobs" in said("--holds", "auto", "--curve", "2000000:5")
    assert not (tmp_path / "bad").exists()
