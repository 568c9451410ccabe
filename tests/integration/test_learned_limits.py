"""The file of learned limits: what is saved comes back, whoever else writes, is killed or has damaged it."""

import asyncio
import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamflow_io.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.bandwidth.expectations import Learned
from streamflow_io.learned.database import VERSION, LearnedLimitsError, default_path
from streamflow_io.learned.proofs import Proofs
from streamflow_io.learned.store import LearnedFacts, LearnedKey, LearnedLimit, LearnedLimits
from streamflow_io.learned.verdicts import Verdicts
from streamflow_io.learned.windows import LearnedWindow, LearnedWindows, WindowKey
from tests.cwl import Bench, Document, found, tool, workflow

KEY = LearnedKey("a1", "scratch write 450 MB/s", 9)
REGISTRY = ConstraintRegistry((RegisteredConstraint(28.125, 10.3, 16, 14),), 290e6)
OTHER = ConstraintRegistry((RegisteredConstraint(56.25, 5.1, 8, 8), RegisteredConstraint(112.5, 4, 4, 4)))
FACTS = LearnedFacts("/sort", "scratch", 1_700_000_000.5, 16)

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
facts = st.builds(LearnedFacts, texts, texts, numbers, counts)
keys = st.builds(LearnedKey, st.sampled_from("ab"), texts, st.integers(0, 40))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "learned.db"


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """The thread of a connection that is not closed keeps a process from ending."""
    before = threading.active_count()
    yield
    for _ in range(1000):
        if threading.active_count() <= before:
            return
        time.sleep(0.01)
    pytest.fail(f"threads: {threading.enumerate()}")


def records(bench: Bench, event: str) -> list[Document]:
    """The records of an event in the telemetry of the last run."""
    return [record for record in bench.telemetry() if record["event"] == event]


@asynccontextmanager
async def opened(path: Path, busy_timeout: float = 60) -> AsyncIterator[LearnedLimits]:
    limits = await LearnedLimits.open(path, busy_timeout)
    try:
        yield limits
    finally:
        await limits.close()


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(keys, st.tuples(registries, facts), max_size=4))
def test_what_is_saved_comes_back(
    tmp_path_factory: pytest.TempPathFactory, saved: dict[LearnedKey, tuple[ConstraintRegistry, LearnedFacts]]
) -> None:
    path = tmp_path_factory.mktemp("learned") / "learned.db"

    async def save() -> None:
        async with opened(path) as limits:
            for key, (registry, its_facts) in saved.items():
                await limits.save(key, OTHER, FACTS)
                await limits.mark_used(key)
                await limits.save(key, registry, its_facts)

    async def load() -> None:
        async with opened(path) as limits:
            assert {limit.key: limit for limit in await limits.list()} == {
                key: LearnedLimit(key, registry, its_facts, 0) for key, (registry, its_facts) in saved.items()
            }
            for tool, storage in {(key.tool, key.storage) for key in saved}:
                assert await limits.load(tool, storage) == {
                    key.size_class: registry
                    for key, (registry, _) in saved.items()
                    if (key.tool, key.storage) == (tool, storage)
                }

    asyncio.run(save())
    asyncio.run(load())


async def test_nothing_is_known_of_another_tool_or_storage(path: Path) -> None:
    async with opened(path) as limits:
        await limits.save(KEY, REGISTRY, FACTS)
        assert await limits.load("a1", "scratch write 500 MB/s") == {}
        assert await limits.load("b2", KEY.storage) == {}


async def test_uses_are_counted_since_it_was_learned(path: Path) -> None:
    async with opened(path) as limits:
        await limits.mark_used(KEY)
        await limits.save(KEY, REGISTRY, FACTS)
        await limits.mark_used(KEY)
        await limits.mark_used(KEY)
        (limit,) = await limits.list()
        assert limit.used == 2
        await limits.save(KEY, OTHER, FACTS)
        (limit,) = await limits.list()
        assert limit.used == 0


async def test_forget(path: Path) -> None:
    near, far = LearnedKey("a1", KEY.storage, 10), LearnedKey("a1", KEY.storage, 12)
    async with opened(path) as limits:
        for key in (KEY, near, far):
            await limits.save(key, REGISTRY, FACTS)
        await limits.forget([KEY, far, LearnedKey("b2", KEY.storage, 9)])
        assert await limits.load("a1", KEY.storage) == {10: REGISTRY}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM learned").fetchone() == (1,)


async def test_only_the_user_can_read_it(path: Path) -> None:
    async with opened(path) as limits:
        await limits.save(KEY, REGISTRY, FACTS)
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


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (newer, f"another version of StreamFlow-IO (its format is {VERSION + 1}, known is {VERSION})"),
        (of_another_program, "database of another program"),
        (no_database, "file is not a database"),
        (damaged_in_the_middle, "it cannot be used: "),
        (a_directory, "unable to open database file"),
        (a_file_above, "exists"),
        (a_missing_table, "no such table"),
    ],
)
async def test_a_file_that_cannot_be_used(path: Path, damage: Callable[[Path], None], reason: str) -> None:
    async with opened(path) as limits:
        await limits.save(KEY, REGISTRY, FACTS)
    damage(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(LearnedLimitsError) as error:
        async with opened(path) as limits:
            await limits.load(KEY.tool, KEY.storage)
    assert reason in error.value.reason
    assert str(path) in str(error.value)
    assert before is None or path.read_bytes() == before


BEFORE = [
    """
DROP TABLE proofs;
PRAGMA user_version = 6;
""",
    """
DROP TABLE proofs;
ALTER TABLE windows DROP COLUMN bytes;
PRAGMA user_version = 5;
""",
    """
DROP TABLE proofs;
DROP TABLE windows;
PRAGMA user_version = 4;
""",
    """
DROP TABLE proofs;
DROP TABLE windows;
DROP TABLE verdicts;
PRAGMA user_version = 3;
""",
    """
DROP TABLE proofs;
DROP TABLE windows;
DROP TABLE verdicts;
CREATE TABLE registered (learned_id, storage_bw, seconds, concurrency, jobs);
INSERT INTO registered SELECT learned.rowid, value ->> 0, value ->> 1, value ->> 2, value ->> 3
    FROM learned, json_each(entries) ORDER BY value ->> 0 DESC;
ALTER TABLE learned ADD COLUMN id INTEGER;
UPDATE learned SET id = rowid;
ALTER TABLE learned DROP COLUMN entries;
PRAGMA user_version = 2;
""",
]


@pytest.mark.parametrize("before", BEFORE)
async def test_a_file_of_a_version_before_is_brought_up_to_date(path: Path, before: str) -> None:
    async with opened(path) as limits:
        await limits.save(KEY, REGISTRY, FACTS)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(before)
    # Several runs may begin at once.
    opening = await asyncio.gather(*(LearnedLimits.open(path, 60) for _ in range(4)))
    for limits in opening:
        assert await limits.load(KEY.tool, KEY.storage) == {9: REGISTRY}
        await limits.close()
    # All that an older one has not is there.
    window = LearnedWindow(WindowKey("a1", "stream of out", 0), Learned(4.0, None, 3, 2e7), "/a/out", 5.0)
    for table in (Verdicts, LearnedWindows, Proofs):
        other = await table.open(path)
        assert await other.list() == ()
        if isinstance(other, LearnedWindows):
            await other.save([window])
            assert await other.list() == (window,)
        await other.close()


async def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    async with opened(path) as limits:
        await limits.save(KEY, REGISTRY, FACTS)
        assert await limits.load(KEY.tool, KEY.storage) == {9: REGISTRY}


@pytest.mark.parametrize("seconds", [math.nan, math.inf])
async def test_what_cannot_be_kept_leaves_the_old(path: Path, seconds: float) -> None:
    broken = ConstraintRegistry((*OTHER.entries, RegisteredConstraint(200, seconds, 2, 2)))
    async with opened(path) as limits:
        await limits.save(KEY, REGISTRY, FACTS)
        with pytest.raises(LearnedLimitsError):
            await limits.save(KEY, broken, FACTS)
        assert await limits.load(KEY.tool, KEY.storage) == {9: REGISTRY}
        await limits.save(KEY, OTHER, FACTS)
        assert await limits.load(KEY.tool, KEY.storage) == {9: OTHER}


async def test_a_locked_file_is_an_error_after_the_timeout(path: Path) -> None:
    async with opened(path, busy_timeout=0.2) as limits:
        await limits.save(KEY, REGISTRY, FACTS)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for attempt in (
                limits.save(KEY, OTHER, FACTS),
                limits.mark_used(KEY),
                limits.load(KEY.tool, KEY.storage),
                LearnedLimits.open(path, busy_timeout=0.2),
            ):
                with pytest.raises(LearnedLimitsError, match="database is locked"):
                    await attempt
        await limits.save(KEY, OTHER, FACTS)
        assert await limits.load(KEY.tool, KEY.storage) == {9: OTHER}


async def test_a_cancelled_save_leaves_the_old_and_no_lock(path: Path) -> None:
    async with opened(path) as limits, opened(path, busy_timeout=0) as reader:
        await limits.save(KEY, REGISTRY, FACTS)
        for turns in range(40):
            save = asyncio.create_task(limits.save(KEY, OTHER, FACTS))
            for _ in range(turns):
                await asyncio.sleep(0)
            save.cancel()
            await asyncio.gather(save, return_exceptions=True)
            by_class = await limits.load(KEY.tool, KEY.storage)
            assert by_class in ({9: REGISTRY}, {9: OTHER})
            await reader.save(KEY, REGISTRY, FACTS)


async def test_tasks_may_save_at_once(path: Path) -> None:
    async with opened(path) as limits:
        await asyncio.gather(
            *(limits.save(LearnedKey("a1", "scratch", size), REGISTRY, FACTS) for size in range(20)),
            *(limits.mark_used(KEY) for _ in range(5)),
        )
        assert await limits.load("a1", "scratch") == dict.fromkeys(range(20), REGISTRY)


WRITER = """
import asyncio, itertools, sys
from pathlib import Path
from streamflow_io.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.learned.store import LearnedFacts, LearnedKey, LearnedLimits

ENTRIES = 200
path, tool, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

async def main():
    limits = await LearnedLimits.open(path, 60)
    for number in itertools.islice(itertools.count(1), times or None):
        entries = tuple(RegisteredConstraint(float(entry), number, 1, 1) for entry in range(ENTRIES))
        facts = LearnedFacts(tool, "scratch", number, 1)
        await limits.save(LearnedKey(tool, "own", 0), ConstraintRegistry(entries), facts)
        await limits.mark_used(LearnedKey("both", "common", 0))
        print(number, flush=True)
    await limits.close()

asyncio.run(main())
"""


def writer(path: Path, tool: str, times: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), tool, str(times)], stdout=subprocess.PIPE, text=True
    )


def test_two_processes_write_at_once(path: Path) -> None:
    times = 25

    async def prepare() -> None:
        async with opened(path) as limits:
            await limits.save(LearnedKey("both", "common", 0), REGISTRY, FACTS)

    async def check() -> None:
        async with opened(path) as limits:
            by_tool = {limit.key.tool: limit for limit in await limits.list()}
        assert by_tool["both"].used == 2 * times
        for name in ("one", "other"):
            assert {entry.seconds for entry in by_tool[name].registry.entries} == {times}

    asyncio.run(prepare())
    processes = [writer(path, tool, times) for tool in ("one", "other")]
    for process in processes:
        process.communicate(timeout=90)
        assert process.returncode == 0
    asyncio.run(check())


async def test_several_create_it_at_once(path: Path) -> None:
    opening = await asyncio.gather(*(LearnedLimits.open(path, 60) for _ in range(8)))
    for size, limits in enumerate(opening):
        await limits.save(LearnedKey("a1", "scratch", size), REGISTRY, FACTS)
        await limits.close()
    async with opened(path) as limits:
        assert await limits.load("a1", "scratch") == dict.fromkeys(range(8), REGISTRY)


def test_a_process_is_killed_in_the_middle_of_saves(path: Path) -> None:
    """The registry of one number is kept, whole: that of the last save that returned, or of the one that ran."""

    async def saved() -> ConstraintRegistry:
        async with opened(path) as limits:
            return (await limits.load("one", "own"))[0]

    for kill_after in range(8):
        process = writer(path, "one", 0)
        assert process.stdout is not None
        for _ in range(1 + kill_after % 3):
            process.stdout.readline()
        # At another point of a save each time.
        time.sleep(kill_after * 0.001)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().split()
        process.wait()
        acknowledged = int(lines[-1]) if lines else 1 + kill_after % 3
        registry = asyncio.run(saved())
        assert len(registry.entries) == 200
        (number,) = {entry.seconds for entry in registry.entries}
        assert number in (acknowledged, acknowledged + 1)


@pytest.mark.long
def test_two_short_runs_of_two_steps_with_one_tool_learn_together(bench: Bench) -> None:
    """A run of 16 jobs for epochs of 8, 5, 3, 2 and 1 ends before they do; the next one goes on."""
    hints: list[Document] = [
        {"class": "sfio:IOTask"},
        {"class": "sfio:StorageBandwidth", "storageBW": "auto(1,8,1.5)"},
    ]
    needs = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
    save = tool(
        "sleep 0.3; echo $part > out.txt", {"part": "int"}, {"out": found("out.txt")}, hints, requirements=needs
    )
    steps = {name: {"run": save, "scatter": "part", "in": {"part": "parts"}} for name in ("a", "b")}
    document = workflow({"parts": "int[]"}, steps, {"a": "a/out", "b": "b/out"})
    path = bench.directory / "learned.db"
    config = {"storages": [{"name": "disk", "path": "/", "write": 8}], "ioExecutors": 8, "learned": str(path)}

    def run() -> tuple[list[Document], list[str], ConstraintRegistry]:
        """The epochs of a run, why constraints were chosen, and the one registry that is kept."""

        async def kept() -> ConstraintRegistry:
            async with opened(path) as limits:
                (limit,) = await limits.list()
                return limit.registry

        ours = bench.run(document, {"parts": list(range(8))}, config=config)
        assert ours.ok, ours.errors
        assert sorted(ours.files.values()) == sorted(f"{part}\n".encode() for part in range(8) for _ in steps)
        return records(bench, "epoch"), [choice["reason"] for choice in records(bench, "choice")], asyncio.run(kept())

    first, reasons, before = run()
    assert first[0]["jobs"] == first[0]["concurrency"] == 8
    assert {"learned", "remembered"}.isdisjoint(reasons)
    assert not before.is_complete
    assert before.constraints == tuple(epoch["constraint"] for epoch in first if epoch["registered"])
    # There is one learner: its first epoch has jobs of both steps.
    members = {
        job["step"] for job in records(bench, "admitted") if first[0]["started"] <= job["time"] < first[0]["time"]
    }
    assert members == {"/a", "/b"}

    second, reasons, after = run()
    # An epoch that had too few jobs is repeated, and no other.
    whole = [epoch["constraint"] for epoch in first if epoch["jobs"] >= epoch["concurrency"]]
    learned = [*whole, *(epoch["constraint"] for epoch in second)]
    assert learned == [1, 1.5, 2.25, 3.375, 5.0625] == list(after.constraints)
    assert reasons[0] == "remembered"
    assert "learned" in reasons
    assert after.is_complete
    assert after.get(1) == before.get(1)
