"""The file of learned limits: saved values come back, whatever other process writes, is killed or has damaged it."""

import asyncio
import itertools
import math
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.bandwidth.expectations import Learned
from streamflow_io.bandwidth.rates import LearnedWindow
from streamflow_io.records.learned.database import (
    VERSION,
    LearnedDatabase,
    LearnedStoreError,
    SizeKey,
    default_path,
    known_entries,
)
from streamflow_io.records.learned.proofs import Proof
from streamflow_io.records.learned.remembered import Remembered
from streamflow_io.storage.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.storage.learned_limits import LearnedLimit

KEY = SizeKey("a1", "scratch write 450 MB/s", 9)
REGISTRY = ConstraintRegistry((RegisteredConstraint(28.125, 10.3, 16, 14),), 290e6)
OTHER = ConstraintRegistry((RegisteredConstraint(56.25, 5.1, 8, 8), RegisteredConstraint(112.5, 4, 4, 4)))
LIMIT = LearnedLimit(KEY, "/sort", 1_700_000_000.5, "scratch", 16, REGISTRY)
INSTEAD = replace(LIMIT, registry=OTHER)

counts = st.integers(min_value=0, max_value=2**40)
numbers = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
registries = st.builds(
    lambda entries, job_bytes, is_complete: ConstraintRegistry(
        tuple(sorted(entries, key=lambda entry: entry.constraint)), job_bytes, is_complete
    ),
    st.lists(
        st.builds(RegisteredConstraint, numbers, numbers, counts, counts),
        unique_by=lambda entry: entry.constraint,
        max_size=5,
    ),
    st.none() | numbers,
    st.booleans(),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.builds(SizeKey, st.sampled_from("ab"), texts, st.integers(0, 40))
limits = st.builds(LearnedLimit, keys, texts, numbers, texts, counts, registries)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "learned.db"


def opened(path: Path, busy_timeout: float = 60) -> LearnedDatabase:
    return LearnedDatabase(path, busy_timeout)


def kept(path: Path) -> dict[SizeKey, ConstraintRegistry]:
    return {limit.key: limit.registry for limit in known_entries(path, LearnedLimit)}


def mark_used(database: LearnedDatabase) -> None:
    database.update(LearnedLimit, [KEY], lambda limit: replace(limit, used=limit.used + 1))


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(limits, unique_by=lambda limit: limit.key, max_size=4))
def test_what_is_saved_comes_back(tmp_path_factory: pytest.TempPathFactory, saved: list[LearnedLimit]) -> None:
    path = tmp_path_factory.mktemp("learned") / "learned.db"

    begun = ConstraintRegistry(is_complete=False)
    opened(path).save(replace(INSTEAD, key=limit.key, registry=begun, used=3) for limit in saved)
    opened(path).save(saved)
    assert sorted(known_entries(path, LearnedLimit), key=str) == sorted(saved, key=str)
    assert known_entries(path, Proof) == ()


def test_uses_are_counted_since_it_was_learned(path: Path) -> None:
    database = opened(path)
    mark_used(database)
    database.save([LIMIT])
    mark_used(database)
    mark_used(database)
    assert known_entries(path, LearnedLimit) == (replace(LIMIT, used=2),)
    database.save([INSTEAD])
    assert known_entries(path, LearnedLimit) == (INSTEAD,)


def test_forget(path: Path) -> None:
    near, far, unknown = (replace(LIMIT, key=replace(KEY, size_class=size)) for size in (10, 12, 13))
    # Of another kind, with the same key.
    window = LearnedWindow(KEY, "/sort", 5.0, Learned(4.0, None, 3))
    database = opened(path)
    database.save([LIMIT, near, far])
    database.save([window])
    database.forget([LIMIT, far, unknown])
    assert known_entries(path, LearnedLimit) == (near,)
    assert known_entries(path, LearnedWindow) == (window,)


def test_only_the_user_can_read_it(path: Path) -> None:
    opened(path).save([LIMIT])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_default_is_in_the_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", value)
        assert default_path() == tmp_path / ".local/share/streamflow-io/learned.db"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_path() == Path("/data/streamflow-io/learned.db")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")


def older(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION - 1}")


def of_another_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE step (id INTEGER)")


def no_database(path: Path) -> None:
    path.write_text("learned: nothing\n" * 100)


def damaged_in_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 10 :] = os.urandom(len(content) - len(content) // 10)
    path.write_bytes(content)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_file_above(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("")


def a_missing_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE learned")


def a_mistake(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE learned SET value = json_set(value, '$.executors', 'x')")
        connection.commit()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (newer, f"(its format is {VERSION + 1}, that of this version is {VERSION}): move it away to learn anew"),
        (older, f"(its format is {VERSION - 1}, that of this version is {VERSION}): move it away to learn anew"),
        (a_mistake, "an entry of the kind limit has a mistake: Expected `int`, got `str` - at `$.executors`"),
        (of_another_program, "database of another program"),
        (no_database, "file is not a database"),
        (damaged_in_the_middle, "it cannot be used: "),
        (a_directory, "unable to open database file"),
        (a_file_above, "exists"),
        (a_missing_table, "no such table"),
    ],
)
def test_a_file_that_cannot_be_used(path: Path, damage: Callable[[Path], None], reason: str) -> None:
    opened(path).save([LIMIT])
    damage(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(LearnedStoreError) as error:
        opened(path).save([INSTEAD])
    assert reason in error.value.reason
    assert str(path) in str(error.value)
    assert before is None or path.read_bytes() == before
    if path.is_file():
        with pytest.raises(LearnedStoreError, match=re.escape(reason)):
            known_entries(path, LearnedLimit)


@pytest.mark.parametrize(
    "change",
    [{"learned": math.nan}, {"learned": math.inf}, {"step": "/\udcff"}],
    ids=["no number", "infinite", "no text"],
)
def test_what_cannot_be_kept_leaves_the_old(path: Path, change: dict[str, Any]) -> None:
    database = opened(path)
    database.save([LIMIT])
    with pytest.raises(LearnedStoreError):
        database.save([replace(INSTEAD, key=replace(KEY, size_class=1)), replace(INSTEAD, **change)])
    assert known_entries(path, LearnedLimit) == (LIMIT,)
    database.save([INSTEAD])
    assert known_entries(path, LearnedLimit) == (INSTEAD,)


def test_a_locked_file_is_an_error_after_the_timeout(path: Path) -> None:
    database = opened(path, busy_timeout=0.2)
    database.save([LIMIT])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for attempt in (
            lambda: database.save([INSTEAD]),
            lambda: database.save_if(INSTEAD, [KEY], bool),
            lambda: mark_used(database),
            lambda: database.forget([LIMIT]),
        ):
            with pytest.raises(LearnedStoreError, match="database is locked"):
                attempt()
    database.save([INSTEAD])
    assert known_entries(path, LearnedLimit) == (INSTEAD,)


async def test_cancelled_saves_leave_the_last_of_those_that_were_carried_out(path: Path) -> None:
    remembered = Remembered(path, LearnedLimit, (), "Limits are")
    await remembered.remember(LIMIT)
    for turns in range(40):
        save = asyncio.create_task(remembered.remember(replace(LIMIT, executors=turns)))
        for _ in range(turns % 8):
            await asyncio.sleep(0)
        save.cancel()
        await asyncio.gather(save, return_exceptions=True)
        # Carried out after a save that has begun, and before no other one.
        await remembered.remember(replace(INSTEAD, executors=turns))
        assert known_entries(path, LearnedLimit) == (replace(INSTEAD, executors=turns),)
        opened(path, busy_timeout=0).save([LIMIT])


ENTRIES = 200


def write(path: Path, tool: str, times: int, said: int) -> None:
    """Save again and again; zero times means for ever. Each number is said when its save has returned."""
    database = opened(path)
    for number in itertools.islice(itertools.count(1), times or None):
        entries = tuple(RegisteredConstraint(float(entry), number, 1, 1) for entry in range(ENTRIES))
        own, common = SizeKey(tool, "own", 0), SizeKey("both", "common", 0)
        database.save([LearnedLimit(own, tool, number, "scratch", 1, ConstraintRegistry(entries))])
        database.update(LearnedLimit, [common], lambda limit: replace(limit, used=limit.used + 1))
        os.write(said, f"{number}\n".encode())


@contextmanager
def writer(path: Path, tool: str, times: int) -> Iterator[tuple[int, TextIO]]:
    """A forked process that saves, and what it says. A new interpreter would take a second to import all this."""
    said, says = os.pipe()
    if (process := os.fork()) == 0:
        code = 1
        try:
            os.close(said)
            write(path, tool, times, says)
            code = 0
        finally:
            os._exit(code)
    os.close(says)
    with os.fdopen(said) as lines:
        yield process, lines


def test_two_processes_write_at_once(path: Path) -> None:
    times = 10
    opened(path).save([replace(LIMIT, key=SizeKey("both", "common", 0))])
    with writer(path, "one", times) as (one, said), writer(path, "other", times) as (other, others):
        assert [len(lines.readlines()) for lines in (said, others)] == [times] * 2
        assert [os.waitpid(process, 0)[1] for process in (one, other)] == [0, 0]
    by_tool = {limit.key.tool: limit for limit in known_entries(path, LearnedLimit)}
    assert by_tool["both"].used == 2 * times
    for name in ("one", "other"):
        assert {entry.seconds for entry in by_tool[name].registry.entries} == {times}


KILLED_WRITER = """
import os, sqlite3, sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
values = ((str(number), "x" * 4096) for number in range(100))
connection.executemany("INSERT INTO learned (kind, key, value) VALUES ('limit', ?, ?)", values)
os._exit(0)
"""


def test_a_reader_undoes_a_save_that_was_cut_off(path: Path) -> None:
    """The file of a process that was killed within a save has a journal, which its next reader has to roll back."""
    opened(path).save([LIMIT])
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(path)], check=True)
    assert path.with_name(f"{path.name}-journal").exists()
    assert known_entries(path, LearnedLimit) == (LIMIT,)


def test_a_process_is_killed_in_the_middle_of_saves(path: Path) -> None:
    """The registry of one number is kept, whole: that of the last save that returned, or of the one that ran."""

    for kill_after in range(6):
        with writer(path, "one", 0) as (process, said):
            for _ in range(1 + kill_after % 3):
                said.readline()
            # At another point of a save each time.
            time.sleep(kill_after * 0.001)
            os.kill(process, signal.SIGKILL)
            lines = said.read().split()
            os.waitpid(process, 0)
        acknowledged = int(lines[-1]) if lines else 1 + kill_after % 3
        registry = kept(path)[SizeKey("one", "own", 0)]
        assert len(registry.entries) == ENTRIES
        (number,) = {entry.seconds for entry in registry.entries}
        assert number in (acknowledged, acknowledged + 1)
