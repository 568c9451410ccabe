"""`streamflow-io storage share` for runs that follow schedules."""

from __future__ import annotations

import json
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
    assert "it is too large: 1 point, up to 2,000,000 jobs" in said("--holds", "auto", "--curve", "2000000:5")
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ("1:5,x", "'x' is no file, and no point"),
        ("1:5,2:y", "'2:y' is no point"),
        ("1:5,1:6", "1 writers are there twice"),
        ("0:5", "0:5 is not above 0"),
        ("1:inf", "1:inf is not above 0"),
        (__file__, "this is no result of `storage probe --json`"),
    ],
)
def test_a_curve_with_a_mistake(curve: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--write", "9", "--holds", "auto", "--curve", curve]
    assert main(["storage", "share", str(tmp_path / "bad"), *words, "--json"]) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["field"], error["message"]) == ("--curve", message)


def test_the_curve_is_what_storage_probe_has_measured(tmp_path: Path) -> None:
    probed = [(1, 5.5, 9.0), (4, 12.3, 30.0)]
    levels = [
        {"writers": count, "write": {"bandwidth": write}, "read": {"bandwidth": read}} for count, write, read in probed
    ]
    (tmp_path / "probe.json").write_text(json.dumps({"ok": True, "levels": levels}))
    group = tmp_path / "group"
    words = ["--write", "9", "--holds", "auto", "--curve", str(tmp_path / "probe.json")]
    assert main(["storage", "share", str(group), *words]) == 0
    ledger = LedgerFile.model_validate_json((group / "ledger.json").read_text())
    assert ledger.model_extra == {"curve": {"write": [[1, 5.5], [4, 12.3]], "read": [[1, 9.0], [4, 30.0]]}}
