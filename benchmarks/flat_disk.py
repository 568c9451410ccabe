"""How evenly a job writes to a disk that is held to a rate, with and without what `sfio-node` writes out meanwhile.

The job writes files and syncs each, as one that saves checkpoints does. Without write-out the kernel collects pages,
and all of them go to the disk with a sync, however evenly the job has written them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import pstdev

from lab.loop_device import LimitedDisk
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.protocol import JobSpec, RateLimit

from .disk_watch import written_each
from .model import Comparison, Sample
from .node import with_runtime
from .processes import run
from .slow_disks import BANDWIDTH, cold_on, obstacle
from .workload import Outcome, Variant

RATE = 20
FILES, FILE_MEBIBYTES = 5, 80
AT_MOST = 0.7

_DISK_BYTES = 2**30
_LOOK_SECONDS = 0.1
_SECOND = 10
_WRITTEN_OUT, _NOT = "flat disk", "flat disk, without write-out"
_DEVIATION = "sd of a second, MB/s"
_SCRIPT = """for number in $(seq "$1"); do
    dd if=/dev/zero of="saved$number" bs=1M count="$2" conv=fdatasync status=none
done"""


def flat_disk(mount: Path) -> Sequence[Variant]:
    """A job of 20 MB/s on a disk of 100 MB/s. As root.

    :param mount: where the disk is to be
    """
    skipped = obstacle()

    def variant(name: str, is_written_out: bool) -> Variant:
        def measure(directory: Path) -> Outcome:
            with cold_on(BANDWIDTH, mount, directory, (), _DISK_BYTES) as disk:
                # What lies elsewhere than the storage is not written out. It counts all the same.
                storage = mount if is_written_out else mount / "lost+found"
                return with_runtime(directory, lambda runtime: _run(runtime, mount, storage, disk))

        return Variant(name, measure, skipped=skipped)

    return variant(_WRITTEN_OUT, True), variant(_NOT, False)


async def _run(runtime: EmbeddedRuntime, mount: Path, storage: Path, disk: LimitedDisk) -> Outcome:
    job = await runtime.create_job("task")
    limit = RateLimit(rate=RATE * 10**6, direction="write", path=str(storage))
    words = await job.wrap(JobSpec(name="task", limit=limit))
    command = [*words, "bash", "-euc", _SCRIPT, "save", str(FILES), str(FILE_MEBIBYTES)]
    with written_each(disk, _LOOK_SECONDS) as amounts:
        finished = await asyncio.to_thread(run, [command], mount)
    deviation = deviation_of_seconds([one.bytes for one in amounts]) / 10**6
    return Outcome(Sample(wall=finished.seconds, window=finished.seconds, further={_DEVIATION: deviation}))


def deviation_of_seconds(amounts: Sequence[float]) -> float:
    """The standard deviation of the bytes that were written in a second, over all seconds but the first.

    :param amounts: of each tenth of a second; a second begins at each
    """
    seconds = [sum(amounts[at : at + _SECOND]) for at in range(_SECOND, len(amounts) - _SECOND + 1)]
    return pstdev(seconds) if seconds else 0.0


FLAT_DISK = Comparison(
    name=f"{_DEVIATION}: {_WRITTEN_OUT} / {_NOT.removeprefix(f'{_WRITTEN_OUT}, ')}",
    measure=_DEVIATION,
    variant=_WRITTEN_OUT,
    baseline=_NOT,
    at_most=AT_MOST,
)
