"""Windows that are remembered from run to run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from streamflow_io.bandwidth.expectations import Learned
from streamflow_io.bandwidth.rates import RememberedWindows

MIB = 2**20
OF = Learned(4.5, 1.0, 3)


def remembered(path: Path, tool: str = "a1", storage: str = "disk") -> RememberedWindows:
    return RememberedWindows(path, {"/save": tool}, {"/save": storage})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in which an earlier run has kept its windows."""
    path = tmp_path / "data" / "learned.db"
    windows = remembered(path)
    assert windows.of("/save", 100 * MIB) is None
    asyncio.run(windows.keep({"/save": OF}))
    return path


def test_nothing_is_made_where_nothing_is_learned(tmp_path: Path) -> None:
    asyncio.run(remembered(tmp_path / "data" / "learned.db").keep({}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tool", "storage", "size", "expected"),
    [
        ("a1", "disk", 100, OF),
        ("a1", "disk", 60, OF),
        ("a1", "disk", 200, OF),
        ("a1", "disk", 400, None),
        ("a1", "disk", 0, None),
        ("b2", "disk", 100, None),
        ("a1", "tape", 100, None),
    ],
)
def test_it_holds_for_the_same_tool_and_storage_and_about_the_same_input(
    path: Path, tool: str, storage: str, size: int, expected: Learned | None
) -> None:
    assert remembered(path, tool, storage).of("/save", size * MIB) == expected


def test_what_is_learned_later_replaces_it(path: Path) -> None:
    windows = remembered(path)
    windows.of("/save", 100 * MIB)
    asyncio.run(windows.keep({"/save": Learned(9.0, None, 1)}))
    assert remembered(path).of("/save", 100 * MIB) == Learned(9.0, None, 1)


def test_a_file_that_cannot_be_used_is_no_error(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"no database" * 1000)
    windows = remembered(path)
    assert windows.of("/save", 100 * MIB) is None
    asyncio.run(windows.keep({"/save": OF}))
    assert [message.partition(":")[0] for message in caplog.messages] == ["Windows are not remembered in this run"]


def test_what_is_kept_holds_for_the_input_of_the_first_job(path: Path) -> None:
    windows = remembered(path)
    for size in (0, 100 * MIB):
        windows.of("/save", size)
    asyncio.run(windows.keep({"/save": Learned(9.0, None, 1)}))
    assert remembered(path).of("/save", 100 * MIB) == OF


def test_of_what_has_no_tool_nothing_is_known(path: Path) -> None:
    windows = remembered(path)
    assert windows.of("/other", 0) is None
    asyncio.run(windows.keep({"/other": OF}))
