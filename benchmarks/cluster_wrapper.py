"""The time that the wrapper adds to a job on a host and on a node of Slurm.

Without StreamFlow, which looks at jobs too rarely to see it: `sfio-node serve` where the driver would start it, and the
jobs one after the other on the node.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from lab.machines.deployments import slurm_environment
from streamflow_io.runtime.embedded import find_sfio_node
from streamflow_io.runtime.node_runtime import NodeRuntimeError
from streamflow_io.runtime.protocol import JobSpec, OutputRule, WatchedOutput
from streamflow_io.runtime.wire import text_of

from .cluster_sites import ONE, SCRATCH, deliver, hosts, measured, on_host, program_on_host, slurm
from .model import Sample
from .processes import CommandError
from .workflows import TOOL
from .workload import Outcome

JOBS = 100
MEASURE = "wrapper_ms"
_PROGRAM = "cluster_tools.py"
_BINARY = "sfio-node"
_SPECIFICATION = "job.json"
_TOOL = (*TOOL[:-1], str(Path(__file__).with_name(_PROGRAM)))


def on_a_host(directory: Path) -> Outcome:
    """Jobs under `sfio-node exec`, as on SSH hosts.

    :return: :data:`MEASURE`: milliseconds for each job
    :raises CommandError: if a command fails
    """
    with hosts() as laboratory:
        deliver(laboratory, _binary(), _BINARY)
        deliver(laboratory, _write_specification(directory, SCRATCH), _SPECIFICATION)
        run = f"{SCRATCH}/run"
        binary, specification = f"{SCRATCH}/{_BINARY}", f"{SCRATCH}/{_SPECIFICATION}"
        serve = [binary, "serve", "--directory", run]
        timing = [*program_on_host(_PROGRAM), *_time_wrapper(run, specification, binary, "exec")]
        return _measure(directory, *(on_host(laboratory, ONE, command) for command in (serve, timing)))


def on_slurm(directory: Path) -> Outcome:
    """Jobs under `sfio-node run`, as on a queue manager, whose `serve` is on the login node.

    :return: :data:`MEASURE`: milliseconds for each job
    :raises CommandError: if a command fails
    """
    with slurm() as laboratory:
        specification, binary, run = _write_specification(directory, str(directory)), _binary(), directory / "run"
        serve = [*laboratory.prefix, str(binary), "serve", "--directory", str(run), "--shared"]
        timing = [*_TOOL, *_time_wrapper(str(run), str(specification), str(binary), "run")]
        # It prints nothing itself, and ends with us because nothing is between: it would wait for a Slurm that is gone.
        submit = ["sbatch", "--quiet", "--wait", f"--output={directory}/output.1", f"--wrap={shlex.join(timing)}"]
        variables = [f"{name}={value}" for name, value in slurm_environment(laboratory).items()]
        submitted = [*laboratory.prefix, "env", *variables, *submit]
        return _measure(directory, serve, submitted)


def _measure(directory: Path, *commands: Sequence[str]) -> Outcome:
    start = time.monotonic()
    added = measured(directory, *commands)
    wall = time.monotonic() - start
    return Outcome(Sample(wall=wall, window=wall, further={MEASURE: added}))


def _time_wrapper(run: str, specification: str, binary: str, mode: str) -> list[str]:
    return ["time-wrapper", str(JOBS), run, specification, binary, mode]


def _binary() -> Path:
    try:
        return find_sfio_node()
    except NodeRuntimeError as error:
        raise CommandError(str(error)) from None


def _write_specification(directory: Path, root: str) -> Path:
    """Write the `job.json` of a job with one watched output."""
    rule = OutputRule(globs=(), committed="on_close")
    output = WatchedOutput(port="output", root=root, globs=("*.txt",), kind="file", rules=(rule,))
    path = directory / _SPECIFICATION
    path.write_text(text_of(JobSpec(name="true", outputs=(output,))))
    return path
