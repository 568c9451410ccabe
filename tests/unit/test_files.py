"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from streamflow_io.files import write_atomically


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 250)
    for text in ("first", "second"):
        write_atomically(file, text)
        assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_leaves_what_is_there(tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("as it was")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(file, "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    for text in ("first", "second"):
        write_atomically(tmp_path / "link", text)
        assert (tmp_path / "file").read_text() == text
    assert (tmp_path / "link").is_symlink()


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    write_atomically(fifo, "text")
    reader.join()
    assert read == ["text"]
    assert fifo.is_fifo()


def test_a_device_is_written_and_stays(tmp_path: Path) -> None:
    (tmp_path / "device").symlink_to("/dev/null")
    write_atomically(tmp_path / "device", "text")
    assert (tmp_path / "device").is_char_device()
    assert [path.name for path in tmp_path.iterdir()] == ["device"]
