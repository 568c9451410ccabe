"""One trial: a run, its fault, and a look at everything afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from lab.container_sites import Containers
from lab.disks import mounts, real_disk, small_disk
from lab.forked import Driver
from lab.runs import RETRY, Bench, Run
from lab.sites import Site
from streamflow_io.records.learned.proofs import known_proofs

from .allocations import Allocation
from .cases import Case, Fault
from .containers import Engine
from .faults import Place, strike
from .hosts import Hosts
from .limits import changing
from .processes import of_run
from .verdict import Verdict, judge
from .workloads import BESIDE, CONFIGS, ENVIRONMENTS, LEARNED, REFUSED, make, plain_steps, space

#: A run takes a few seconds; with retries, on a busy machine, some more. Longer is a hang.
RUN_SECONDS = 90.0
#: Containers come and go one after the other. A node that is lost is noticed late.
_LABORATORY_SECONDS = 90.0
#: `serve` waits 10 s for jobs to end when the driver is gone.
_LEAVE_SECONDS = 15.0
#: Slurm takes 36 s for a step whose `srun` has ended while the step was launched.
_STEP_SECONDS = 60.0
_CONTAINERS_DIE = (Fault("container", "KILL"), Fault("dockerd", "KILL"))
_PAUSED = Fault("container", "pause")
#: A pattern of the files that a dead container or node may leave. No command removes files of a node that is lost: its
#: run directory, and FIFOs in the directories of its jobs.
_MAY_BE_LEFT = {
    **dict.fromkeys(_CONTAINERS_DIE, r"/\.streamflow-io-\d+/streamflow-io-"),
    Fault("node", "down"): r"^/.*/(streamflow-io-\d+-|work/[-\w]+/)",
}
#: What StreamFlow says of a container that it has started, and then cannot look into.
_DEPLOYED_IN_VAIN = re.compile(r"Error \w+.* Docker container \w+: .* is paused, unpause the container before exec")
_CLOCK = Path(__file__).parent / "clock"


@dataclass(frozen=True)
class Trial:
    """A finished trial.

    :ivar struck: what was done to the run; None means that the run had ended before
    :ivar evidence: the directory with everything of it
    """

    case: Case
    struck: str | None
    verdict: Verdict
    seconds: float
    evidence: Path


def run_plain(
    directory: Path, workload: str, where: Engine | Allocation | None = None, seconds: float = RUN_SECONDS
) -> Run:
    """Run a workload with plain StreamFlow.

    :param where: all steps run; None: here
    :param seconds: of wall time that it may take
    :raises RuntimeError: if it fails, or takes longer
    """
    directory.mkdir(parents=True)
    document, job = make(workload, directory / "files")
    if isinstance(where, Engine):
        document = where.contain(document, ())
    bench = Bench(directory) if where is None else where.site(directory)
    # StreamFlow 0.2.0rc3 gathers all outputs but the last one of a nested_crossproduct wrongly.
    bench.program = "streamflow gathering"
    try:
        run = bench.run(document, job, io=False, seconds=seconds)
    except AssertionError as error:
        raise RuntimeError(str(error)) from None
    if not run.ok:
        raise RuntimeError(f"plain StreamFlow fails on {workload}: {run.log}")
    return run


def run_case(directory: Path, case: Case, plain: Run, where: Hosts | Engine | Allocation | None = None) -> Trial:
    """Run a case in a directory of its own, which is left as evidence.

    :param where: the jobs run; None: here
    """
    directory.mkdir(parents=True)
    bench = Bench(directory) if where is None else where.site(directory)
    document, job = make(case.workload, directory / "files")
    if isinstance(where, Engine):
        document = where.contain(document, case.local_steps(document["steps"]))
    config = CONFIGS.get(case.workload, {})
    if case.workload in LEARNED and not (run := bench.run(document, job, config=config)).ok:
        raise RuntimeError(f"{case.workload} fails without a fault: {run.errors}")
    beside = bench.write(document, job, True, config) if case.workload in BESIDE else None
    path = bench.write(document, job, True, config, **(RETRY if case.retries else {}))
    place = Place(path.parent / "tmp", path.parent / "jump", path.parent / "hold", bench, where)
    environment = dict(ENVIRONMENTS.get(case.workload, {}))
    if case.fault.victim == "clock":
        environment |= {"PYTHONPATH": str(_CLOCK), "CAMPAIGN_JUMP": str(place.jump)}
    if case.held:
        environment["CAMPAIGN_HOLD"] = str(place.hold)
    # A network that comes back late is part of the trial.
    seconds = RUN_SECONDS + (case.relief or 0) + (_LABORATORY_SECONDS if isinstance(where, Engine | Allocation) else 0)
    began = time.monotonic()
    left: list[str] = []
    with (
        _disk(case, place.temporary, left),
        changing(case, place.temporary, where if isinstance(where, Hosts) else None),
    ):
        other = None if beside is None else bench.start(beside)
        process = bench.start(path, **environment)
        struck = strike(case, process, place)
        hung = not _ends(process, seconds)
        if beside is not None and other is not None:
            left += _wrong_beside(bench, beside, other, plain, may_fail=case.fault == Fault("node", "down"))
        left += _leftovers(bench, path.parent, case, hung)
        _kill(place.temporary)
    if isinstance(bench, Containers):
        bench.remove_containers()
    run = bench.finish(process, path)
    verdict = judge(
        run, plain, struck=struck is not None, driver_was_victim=case.fault.victim == "driver", left=left,
        plain_steps=plain_steps(document, has_gates=not isinstance(where, Allocation)),
    )  # fmt: skip
    if case.fault.is_from_outside and (lessons := _wrong_lessons(bench)):
        verdict = replace(verdict, violations=(*verdict.violations, *lessons))
    if hung:
        verdict = Verdict("hung", verdict.message, (f"still runs after {seconds:.0f} s", *verdict.violations))
    return Trial(case, struck, verdict, time.monotonic() - began, directory)


def _wrong_lessons(bench: Bench) -> list[str]:
    """Lessons that are not true of the tools."""
    proofs = known_proofs(bench.data / "streamflow-io" / "learned.db")
    refused = [(each.step, each.reason) for each in proofs if not each.is_proven]
    return [f"learned what is not true: {step} {reason}" for step, reason in refused if REFUSED.get(step) != reason]


def _wrong_beside(bench: Bench, path: Path, driver: Driver, plain: Run, may_fail: bool) -> list[str]:
    """Faults of a run to which nothing was done.

    :param may_fail: whether the run shares the node that was lost; it repeats no job
    """
    if not _ends(driver, RUN_SECONDS):
        return ["the run beside it, which hangs"]
    run = bench.finish(driver, path)
    if not run.ok:
        return [] if may_fail else [f"the run beside it fails: {run.errors}"]
    entries = sorted(bench.data.glob("streamflow-io/shared/*/runs/*"))
    return [f"entry {entry}" for entry in entries] + ([] if run.results == plain.results else ["another result beside"])


def _disk(case: Case, directory: Path, left: list[str]) -> contextlib.AbstractContextManager[None]:
    if case.fault.victim != "disk":
        return contextlib.nullcontext()
    return (
        real_disk(directory, left) if case.fault.kind == "stuck" else small_disk(directory, left, space(case.workload))
    )


def _ends(process: Driver, seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False
    return True


def _leftovers(bench: Bench, place: Path, case: Case, hung: bool) -> list[str]:
    """Leftovers that should not be there, and stay for longer than the runtime may take to leave.

    The containers of a driver that has ended stay, as without us, but nothing runs in them. StreamFlow gives up a
    container that was paused while it was deployed. A later run removes what a killed container has left.

    :param place: the directory of the run
    """
    temporary = place / "tmp"
    is_dead = case.fault.victim == "driver" and not hung
    is_given_up = case.fault == _PAUSED and _DEPLOYED_IN_VAIN.search((place / "stderr").read_text()) is not None
    allowed = re.compile(_MAY_BE_LEFT.get(case.fault, r"(?!)"))
    end = time.monotonic() + (_STEP_SECONDS if isinstance(bench, Site) else _LEAVE_SECONDS)
    while True:
        idle_may_stay = is_dead or is_given_up
        left = bench.left_by_us() if isinstance(bench, Containers) and idle_may_stay else bench.leftovers()
        # What is below `streamflow` is StreamFlow's: the directories of its jobs.
        left += [str(path) for path in temporary.iterdir() if path.name not in ("streamflow", "filler")]
        left += [str(path) for path in mounts() if path.is_relative_to(bench.directory) and path != temporary]
        left = [what for what in left if not allowed.search(what)]
        if not left or time.monotonic() > end:
            return sorted(set(left))
        time.sleep(0.1)


def _kill(temporary: Path) -> None:
    for process in of_run(temporary):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
