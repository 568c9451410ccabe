"""The adapter between StreamFlow's jobs and the admission."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from streamflow.core.context import StreamFlowContext

from benchmarks.driver_parts import Cluster, io_task_admission, job, target
from streamflow_io.scheduling.admission import Admission


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
    admission = io_task_admission(context(cluster))
    for number in range(3):
        await admission.admit(job(number), [target()])
    assert told == [["cluster/node00000", "cluster/node00001"]]
    cluster.nodes = 3
    cluster.__post_init__()
    await admission.admit(job(3), [target()])
    assert told[1:] == [["cluster/node00000", "cluster/node00001", "cluster/node00002"]]


def context(cluster: Cluster) -> StreamFlowContext:
    return SimpleNamespace(
        deployment_manager=SimpleNamespace(get_connector=lambda _: cluster),
        data_manager=SimpleNamespace(get_data_locations=lambda _: []),
    )
