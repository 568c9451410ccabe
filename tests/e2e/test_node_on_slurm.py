"""`sfio-node run` as the command of jobs of a real Slurm."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.machines.laboratory import Laboratory
from lab.node import Job, job_text, output, wait_for
from lab.node_remote import Alone, RemoteNode, find_marked, remote_node

Submit = Callable[..., tuple[Job, str]]


@pytest.fixture
def shared(slurm_laboratory: Laboratory, tmp_path: Path) -> Iterator[RemoteNode]:
    for name in ("out", "in", "tmp"):
        (tmp_path / name).mkdir()
    with remote_node(tmp_path) as running:
        yield running


@pytest.fixture
def submit(slurm_laboratory: Laboratory, shared: RemoteNode) -> Iterator[Submit]:
    """Submits a shell script as a job; gives the job, and its number in Slurm."""
    variables = {"SLURM_CONF": str(slurm_laboratory.directory / "slurm.conf"), "TMPDIR": str(shared.base / "tmp")}
    numbers = []

    def start(name: str, script: str, **fields: object) -> tuple[Job, str]:
        directory = shared.run / "jobs" / name
        directory.mkdir()
        (directory / "job.json").write_text(job_text(name, **fields))
        batch = shared.base / f"{name}.sh"
        command = [str(shared.binary), "run", "--job", str(directory), "--", "sh", "-c", script]
        batch.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")  # as the connector does
        log = shared.base / f"{name}.log"
        number = slurm_laboratory.run("sbatch", "--parsable", "-o", log, batch, **variables).strip()
        numbers.append(number)
        return Job(Alone(shared.run, shared.printed), name, shared.server), number

    yield start
    slurm_laboratory.run("scancel", "--quiet", *numbers, **variables)


def test_a_stream_from_node_to_node(shared: RemoteNode, submit: Submit) -> None:
    """The consumer is there before its producer is submitted."""
    data, fifo = random.Random(2).randbytes(5_000_000), shared.base / "in" / "fifo"
    (shared.base / "data").write_bytes(data)
    inputs = [shared.stream("p", shared.base / "out" / "data", fifo)]
    consumer, _ = submit("c", f"cat {fifo} > {shared.base}/copy", inputs=inputs)
    consumer.wait_for("started")
    script = f"(dd bs=100k count=20; sleep 0.5; dd bs=100k) < {shared.base}/data > {shared.base}/out/data 2> /dev/null"
    outputs = [output(shared.base / "out", "data", "on_close")]
    producer, _ = submit("p", script, outputs=outputs)
    wait_for(lambda: [job.served()[-1:] for job in (consumer, producer) if job.named("exit")][1:], "both exits")
    assert consumer.exit()["success"] is producer.exit()["success"] is True
    assert (shared.base / "copy").read_bytes() == data
    wait_for(lambda: not list((shared.base / "tmp").iterdir()), "the end of the directories of the nodes")


@pytest.mark.parametrize("options", [[], ["--full"], ["--signal=KILL", "--full"]], ids=["scancel", "full", "kill"])
def test_scancel_is_no_success(
    shared: RemoteNode, submit: Submit, slurm_laboratory: Laboratory, options: list[str]
) -> None:
    ready, configuration = shared.base / "ready", slurm_laboratory.directory / "slurm.conf"
    job, number = submit("j", f"trap 'exit 0' TERM; setsid sleep 600 & touch {ready}; wait; exit 0")
    wait_for(ready.exists, "the command")
    job.wait_for("started")
    slurm_laboratory.run("scancel", *options, number, SLURM_CONF=str(configuration))
    wait_for(lambda: not find_marked(rb"/streamflow-io-\d+-\w+/jobs/j"), "the end of its processes", 30)
    time.sleep(0.5)
    assert [event["success"] for event in job.named("exit")] in ([], [False])
    if "--signal=KILL" not in options:
        assert list((shared.base / "tmp").iterdir()) == []
    if not job.named("exit"):
        with (job.directory / "events.jsonl").open("a") as events:
            events.write('{"event":"exit"}\n')
