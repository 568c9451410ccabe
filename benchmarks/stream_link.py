"""A byte stream in bursts between two SSH hosts, beside a copy by SSH over the same link.

The producer writes a burst, and computes until the next one: its reader has all that time. Without a limit each burst
takes what it gets of the link; with `streamBW: required` it is spread over the time until the next one. The copy always
wants the whole link, so what counts is its worst second. All variants run the same CWL, with other annotations.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.machines.deployments import ssh_deployment
from lab.machines.laboratory import Laboratory, obstacle
from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import TELEMETRY_FILE
from streamflow_io.report.analysis.requirements import requirements

from .cluster import check_streamed
from .cluster_sites import ONE, OTHER, SCRATCH, hosts
from .model import Comparison, Sample
from .processes import CommandError
from .workflows import JSON, RESULT, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant, Workload

BURSTS = 8
BURST_BYTES = 120 * 10**6
#: With what it takes to write a burst, one begins every 4 s.
COMPUTE_SECONDS = 3.9

_ALONE, _UNLIMITED, _REQUIRED = "copy alone", "no limit", "required"
_ALONE_SECONDS = 10.0
_WORST, _MEAN, _LIMITED = "worst second of the copy, MB/s", "mean of the copy, MB/s", "limited phases"
# Seconds from the beginning of the first burst.
_END = "reader's end"
# Of a burst without a limit nothing is to be compared: of the first two nothing is known yet.
_KNOWN = 2
_BIN_SECONDS = 0.1
_BINS_OF_A_SECOND = 10
_PIECE = 1 << 20


@dataclass
class Copy:
    """Copies from a host by SSH, until it is told to end.

    :ivar arrived: how many bytes came until when, in seconds since the epoch
    """

    laboratory: Laboratory
    arrived: list[tuple[float, int]] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """For as long as the context lasts.

        :raises CommandError: if it has ended before
        """
        ssh, *words = self.laboratory.login(ONE, "cat /dev/zero")
        # A cipher that processors have: the link decides how fast it is.
        command = [*self.laboratory.prefix, ssh, "-c", "aes128-gcm@openssh.com", *words]
        with ThreadPoolExecutor(1) as pool, subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            work = pool.submit(self._take, process)
            try:
                yield
                if process.poll() is not None:
                    raise CommandError(f"the copy has ended with exit code {process.returncode}")
            finally:
                process.terminate()
            work.result()

    def _take(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        total = 0
        while piece := os.read(process.stdout.fileno(), _PIECE):
            total += len(piece)
            self.arrived.append((time.time(), total))


def figures(arrived: Sequence[tuple[float, int]], since: float, until: float) -> dict[str, float]:
    """How fast a copy was, in MB/s.

    :param arrived: as in :class:`Copy`
    :raises CommandError: if there is no second in this time
    """
    number = int((until - since) / _BIN_SECONDS)
    bins = [0] * number
    before = 0
    for when, total in arrived:
        index = int((when - since) / _BIN_SECONDS)
        if 0 <= index < number:
            bins[index] += total - before
        before = total
    seconds = [sum(bins[at : at + _BINS_OF_A_SECOND]) for at in range(number - _BINS_OF_A_SECOND + 1)]
    if not seconds:
        raise CommandError("the stream was not long enough to be compared")
    return {_WORST: min(seconds) / 1e6, _MEAN: sum(bins) / (number * _BIN_SECONDS) / 1e6}


def _alone(_: Path) -> Outcome:
    with hosts() as laboratory:
        copy, start = Copy(laboratory), time.time()
        with copy.at_work():
            time.sleep(_ALONE_SECONDS)
        seconds = time.time() - start
    # What it takes to connect does not count.
    found = figures(copy.arrived, copy.arrived[0][0] + 1.0, start + _ALONE_SECONDS)
    return Outcome(Sample(wall=seconds, window=seconds, further=found))


@dataclass(frozen=True)
class _Way:
    """:ivar stream_bw: none: no limit"""

    workflow: Path
    stream_bw: str | None

    def run(self, directory: Path) -> Outcome:
        with hosts() as laboratory:
            begun = laboratory.directory / "shared" / "begun"
            copy = Copy(laboratory)
            with copy.at_work():
                outcome = self._streamflow(directory, laboratory, begun).run(directory)
            times = [float(line) for line in begun.read_text(encoding="utf-8").splitlines()]
        check_streamed(directory, ("/a", "/b"))
        [telemetry] = directory.rglob(TELEMETRY_FILE)
        history = read_history("run", read_records(telemetry))
        [reader] = [job for job in history.jobs if job.step == "/b"]
        [step] = [step for step in requirements(history).steps if step.step == "/b"]
        if reader.usage is None:
            raise CommandError("the reader was not measured")
        further = {**outcome.sample.further, **figures(copy.arrived, times[_KNOWN], times[-1])}
        further |= {_END: reader.usage.ended - times[0], _LIMITED: step.limited / max(1, step.phases)}
        sample = outcome.sample.model_copy(update={"further": further})
        return dataclasses.replace(outcome, sample=sample, outputs={"sum": outcome.outputs[RESULT]})

    def verify(self, directory: Path) -> None:
        with hosts() as laboratory:
            self._streamflow(directory, laboratory, Path(os.devnull)).verify(directory)

    def _streamflow(self, directory: Path, laboratory: Laboratory, begun: Path) -> StreamFlowRun:
        rule: dict[str, JSON] = {"port": "out", "mode": "no_update"}
        if self.stream_bw is not None:
            rule["streamBW"] = self.stream_bw
        steps: JSON = {"/a": [{"class": "sfio:Streaming", "rules": [rule]}]}
        annotations = directory / "annotations.yml"
        annotations.write_text(json.dumps({"steps": steps}), encoding="utf-8")
        settings = directory / "job.json"
        settings.write_text(json.dumps({"begun": str(begun)}), encoding="utf-8")
        one, other = ({**ssh_deployment(laboratory, address), "workdir": SCRATCH} for address in (ONE, OTHER))
        site = Site({"one": one, "other": other}, {"/a": "one", "/b": "other"}, laboratory.prefix)
        scheduler: dict[str, JSON] = {"annotations": str(annotations)}
        return StreamFlowRun(self.workflow, scheduler, ["stream"], settings, site=site)


def write_bursts(path: Path) -> Path:
    """Write the workflow: `/a` notes when each burst begins, and when all are over, in the file `begun`."""
    note = 'date +%s.%N >> "$0"'
    burst = f"yes burst $i | head -c {BURST_BYTES}; sleep {COMPUTE_SECONDS}"
    numbers = shlex.join(map(str, range(BURSTS)))
    make = tool(
        ["sh", "-euc", f"for i in {numbers}; do {note}; {burst}; done; {note}"],
        {"begun": {"type": "string", "inputBinding": {}}},
        {"out": "stdout"},
        stdout="frames.bin",
    )
    read = tool(
        ["cksum"],
        {"frames": {"type": "File", "streamable": True}},
        {"sum": "stdout"},
        stdin="$(inputs.frames.path)",
        stdout="sum.txt",
    )
    return write_workflow(
        path,
        inputs={"begun": "string"},
        outputs={"sum": {"type": "File", "outputSource": "b/sum"}},
        steps={
            "a": {"run": make, "in": {"begun": "begun"}, "out": ["out"]},
            "b": {"run": read, "in": {"frames": "a/out"}, "out": ["sum"]},
        },
    )


def _prepare(directory: Path) -> Sequence[Variant]:
    workflow, skipped = write_bursts(directory / "bursts.cwl"), obstacle()
    ways = {_UNLIMITED: _Way(workflow, None), _REQUIRED: _Way(workflow, "required")}
    return [
        Variant(_ALONE, _alone, skipped=skipped),
        *(Variant(name, way.run, way.verify, skipped) for name, way in ways.items()),
    ]


STREAM_LINK = Workload(
    "stream-link",
    f"{BURSTS} bursts of {BURST_BYTES // 10**6} MB, one each 4 s, to a reader on another host, beside a copy by SSH",
    _prepare,
    (
        Comparison(
            name="reader's end, required / no limit",
            measure=_END,
            variant=_REQUIRED,
            baseline=_UNLIMITED,
            at_most=1.02,
        ),
        Comparison(
            name="worst second of the copy, required / no limit",
            measure=_WORST,
            variant=_REQUIRED,
            baseline=_UNLIMITED,
            at_least=1.5,
        ),
        Comparison(name="the copy, required / no limit", measure=_MEAN, variant=_REQUIRED, baseline=_UNLIMITED),
        *(
            Comparison(name=f"{_WORST}: {name}", measure=_WORST, variant=name)
            for name in (_ALONE, _UNLIMITED, _REQUIRED)
        ),
        Comparison(name=_LIMITED, measure=_LIMITED, variant=_REQUIRED),
    ),
)
