"""Why an allocation waits, as a run says so."""

from __future__ import annotations

import pytest

from streamflow_io.runtime.allocation.managers import Reason
from streamflow_io.runtime.allocation.queue_watch import QueueWatch
from streamflow_io.runtime.waiting_deployments import listen

PRIORITY, RESOURCES = Reason("Priority"), Reason("Resources")
TOO_MANY = Reason("PartitionNodeLimit", "`nodes`")


def looks(*found: Reason | None) -> list[str | None]:
    watch = QueueWatch("nodes", "Slurm", "7")
    return [watch.looked(reason) for reason in found]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([PRIORITY, None, PRIORITY], []),
        ([PRIORITY, RESOURCES, PRIORITY, RESOURCES], []),
        ([PRIORITY] * 5, ["Priority"]),
        ([PRIORITY, PRIORITY, RESOURCES, RESOURCES, PRIORITY, PRIORITY], ["Priority", "Resources"]),
        # The nodes change, and the reason does not.
        ([Reason("ReqNodeNotAvail, n1"), Reason("ReqNodeNotAvail, n2")], ["ReqNodeNotAvail, n2"]),
    ],
)
def test_a_reason_is_told_once_when_two_looks_have_found_it(
    found: list[Reason | None], told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "streamflow")
    assert looks(*found) == [None] * len(found)
    first, *others = [record.getMessage() for record in caplog.records]
    assert first == "The deployment nodes waits in the queue of Slurm for allocation 7"
    assert others == [f"The deployment nodes still waits for allocation 7 of Slurm: {reason}" for reason in told]


def test_a_run_hears_of_a_reason_that_two_looks_have_found() -> None:
    heard: list[tuple[str, str | None]] = []
    ignore = listen(lambda deployment, waits: heard.append((deployment, waits)))
    looks(PRIORITY, None, RESOURCES, RESOURCES)
    ignore()
    looks(PRIORITY)
    first = "allocation 7 of Slurm"
    assert heard == [("nodes", waits) for waits in (first, f"{first}: Resources")]


def test_a_reason_of_a_moment_ends_no_run() -> None:
    never = "allocation 7 of Slurm can never start (PartitionNodeLimit): change `nodes` in `submit`"
    assert looks(TOO_MANY, PRIORITY, TOO_MANY, None, TOO_MANY, TOO_MANY) == [*[None] * 5, never]
