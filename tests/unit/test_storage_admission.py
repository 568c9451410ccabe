"""The adapter between StreamFlow's jobs and the admission."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.driver_parts import Cluster, io_task_admission, job, target
from streamflow_io.admission.admission import Admission


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The locations that the admission was told of."""
    calls: list[list[str]] = []
    set_locations = Admission.set_locations

    def noted(admission: Admission, pool: str, cores: Mapping[str, float], slots: Mapping[str, int]) -> None:
        calls.append(list(cores))
        set_locations(admission, pool, cores, slots)

    monkeypatch.setattr(Admission, "set_locations", noted)
    return calls


async def test_locations_are_told_when_they_change(told: list[list[str]]) -> None:
    cluster = Cluster(2)
    admission = io_task_admission(cluster)
    for number in range(3):
        await admission.admit(job(number), [target()])
    assert told == [["cluster/node00000", "cluster/node00001"]]
    cluster.resize(3)
    await admission.admit(job(3), [target()])
    assert told[1:] == [["cluster/node00000", "cluster/node00001", "cluster/node00002"]]
