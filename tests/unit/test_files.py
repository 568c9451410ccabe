"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from streamflow_io.files import write_atomically


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_device_is_written_and_stays(tmp_path: Path) -> None:
    (tmp_path / "device").symlink_to("/dev/null")
    write_atomically(tmp_path / "device", "text")
    assert (tmp_path / "device").is_char_device()
    assert [path.name for path in tmp_path.iterdir()] == ["device"]
