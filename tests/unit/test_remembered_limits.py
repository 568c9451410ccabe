"""Limits that are remembered from run to run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from streamflow_io.hints.bandwidth import AutoConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.records.learned.database import LearnedDatabase, LearnedStoreError, known_entries
from streamflow_io.storage.admission.demand import Demand, Placement
from streamflow_io.storage.admission.epochs import EpochEnded
from streamflow_io.storage.admission.learners import LearningEvent, Subject
from streamflow_io.storage.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.storage.learned_limits import LearnedLimit, RememberedLimits

REGISTRY = ConstraintRegistry((RegisteredConstraint(28.125, 10.3, 16, 14),), 290e6)
DISK = StorageConfig(name="disk", path="/", scope="node", write=450)
AUTO = AutoConstraint()
DEMAND = Demand("/sort", True, AUTO, "write", (Placement("here", DISK),))
ENDED = EpochEnded(1, 28.125, 16, 14, 10.3, 290e6, False, True, 0.0)


async def known(remembered: RememberedLimits, tool: str, size_class: int, storage: StorageConfig = DISK) -> bool:
    demand = replace(DEMAND, placements=(Placement("here", storage),))
    loaded = await remembered.load_tool(demand, AUTO, tool, size_class)
    return bool(remembered.make_learner(Subject(loaded.tool, storage, AUTO, "write"), 16).registry)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in which an earlier run has kept a limit."""
    path = tmp_path / "data" / "learned.db"

    async def learn() -> None:
        remembered = RememberedLimits(path, {})
        assert not await known(remembered, "a1", 9)
        assert not path.exists()
        subject = Subject("a1 9", DISK, AUTO, "write")
        remembered.learned(LearningEvent("/sort", subject, 16, ENDED, REGISTRY))
        await remembered.close()

    asyncio.run(learn())
    return path


async def test_a_registry_holds_for_its_tool_its_storage_and_about_its_size(path: Path) -> None:
    remembered = RememberedLimits(path, {})
    other = DISK.model_copy(update={"write": 451})
    assert [await known(remembered, "a1", size) for size in (7, 8, 9, 10, 11)] == [False, True, True, True, False]
    assert not await known(remembered, "b2", 9)
    assert not await known(remembered, "a1", 9, other)
    await remembered.close()
    (limit,) = known_entries(path, LearnedLimit)
    assert (limit.step, limit.storage, limit.executors, limit.used) == ("/sort", "disk", 16, 3)


async def test_a_run_with_fewer_results_leaves_those_of_another_run(path: Path) -> None:
    remembered = RememberedLimits(path, {})
    await known(remembered, "a1", 9)
    fewer = replace(REGISTRY, is_complete=False)
    event = LearningEvent("/sort", Subject("a1 9", DISK, AUTO, "write"), 16, ENDED, fewer)
    remembered.learned(event)
    await remembered.close()
    assert [limit.registry for limit in known_entries(path, LearnedLimit)] == [REGISTRY]
    # What earlier runs have learned is wrong, as this run has found out.
    remembered.contradicted(event)
    remembered.learned(event)
    await remembered.close()
    assert [limit.registry for limit in known_entries(path, LearnedLimit)] == [fewer]


async def test_a_file_that_can_only_be_read_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise LearnedStoreError(path, "read-only")

    monkeypatch.setattr(LearnedDatabase, "update", fails)
    remembered = RememberedLimits(path, {})
    assert await known(remembered, "a1", 9)
    await remembered.close()
    assert caplog.messages == []


async def test_a_file_that_cannot_be_read_is_said_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"no database" * 1000)
    remembered = RememberedLimits(path, {})
    assert not await known(remembered, "a1", 9)
    assert not await known(remembered, "a1", 3)
    await remembered.close()
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "Learned limits are not remembered in this run"
    ]
