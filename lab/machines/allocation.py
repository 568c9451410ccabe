"""An allocation of the Slurm of a laboratory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lab.machines.deployments import slurm_environment
from lab.machines.laboratory import Laboratory, LaboratoryError


@contextmanager
def held_allocation(laboratory: Laboratory, nodes: int, limit: str, *options: str) -> Iterator[dict[str, str]]:
    """Hold an allocation as a batch job does; yield the environment in which commands of Slurm find it.

    :param limit: of time, for `salloc`
    :param options: more words for `salloc`
    :raises LaboratoryError: if Slurm does not give it
    """
    variables = slurm_environment(laboratory)
    ask = ("salloc", "--no-shell", "--no-kill", "--exclusive", f"-N{nodes}", f"-t{limit}", *options)
    told = subprocess.run(
        [*laboratory.prefix, *ask],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    if told.returncode != 0:
        raise LaboratoryError(told.stderr)
    job = told.stderr.split()[-1]
    try:
        yield {**variables, "SLURM_JOB_ID": job}
    finally:
        laboratory.run("scancel", job, **variables)
        while job in laboratory.run("squeue", "-h", "-o", "%i", **variables).split():
            time.sleep(0.25)
