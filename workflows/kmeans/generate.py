#!/usr/bin/env python3
"""Input of any size for this workflow: fragments of points around centres, and the job file. Needs numpy.

    python3 generate.py [NAME] [--fragments 16] [--points 50000] ...    writes generated/NAME

The same arguments give the same bytes, with the same version of numpy. `centres.npy` holds the true centres.

Exit codes: 0 done, 2 numpy is missing and cannot be installed from here (the message says what to do).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Scale:
    """How much input to write."""

    fragments: int = 16
    points: int = 50_000
    dimensions: int = 16
    clusters: int = 20
    iterations: int = 10
    seed: int = 1


def install_numpy() -> bool:
    """Install numpy if this is root and the Python of Debian or Ubuntu; return whether numpy is there."""
    system = Path(sys.executable).parent == Path("/usr/bin") and shutil.which("apt-get") is not None
    if find_spec("numpy") is None and system and os.geteuid() == 0:
        command = (
            "apt-get update; DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-numpy"
        )
        subprocess.run(command, shell=True, stdout=sys.stderr)
    return find_spec("numpy") is not None


def write_fragments(directory: Path, scale: Scale) -> None:
    """Write the true centres, and the fragments, each with a random generator of its own."""
    import numpy as np

    centres = np.random.default_rng(scale.seed).uniform(-10, 10, (scale.clusters, scale.dimensions))
    np.save(directory / "centres.npy", centres)
    for number in range(1, scale.fragments + 1):
        random = np.random.default_rng([scale.seed, number])
        points = centres[random.integers(scale.clusters, size=scale.points)]
        points += 2 * random.standard_normal(points.shape)
        np.save(directory / f"fragment-{number:03d}.npy", points.astype(np.float32))


def job_text(scale: Scale) -> str:
    """The job file, with paths relative to it."""
    numbers = range(1, scale.fragments + 1)
    return "\n".join(
        [
            f"# {marker(scale)}",
            "fragments:",
            *(f"  - {{class: File, location: fragment-{number:03d}.npy}}" for number in numbers),
            f"clusters: {scale.clusters}",
            f"iterations: {scale.iterations}",
            "tolerance: 0.0      # all iterations, whether or not the centroids still move",
            "",
        ]
    )


def marker(scale: Scale) -> str:
    """What a job file was generated with."""
    return "generated with " + " ".join(f"{name}={value}" for name, value in asdict(scale).items())


def parse_arguments() -> tuple[str, Scale]:
    """Name and scale from the command line; exits with a message when they make no sense."""
    default = Scale()
    help_texts = {
        "fragments": "files of points, and jobs per iteration",
        "points": "per fragment",
        "dimensions": "of a point",
        "clusters": "centres, and centroids",
        "iterations": "of the workflow",
        "seed": "of the random numbers",
    }
    parser = argparse.ArgumentParser(description="Points for the k-means template.")
    parser.add_argument("name", nargs="?", default="demo", help="written into generated/NAME (default: demo)")
    for name, text in help_texts.items():
        value = getattr(default, name)
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"{text} (default: {value})")
    arguments = vars(parser.parse_args())
    name = str(arguments.pop("name"))
    if not name.replace("-", "").replace("_", "").isalnum():
        parser.error("NAME: letters, digits, - and _ only")
    for option, value in arguments.items():
        if value < 1:
            parser.error(f"--{option}: at least 1")
    return name, Scale(**arguments)


def main() -> int:
    """Run the command line; return the exit code."""
    name, scale = parse_arguments()
    if not install_numpy():
        advice = f"{sys.executable} -m pip install numpy; Debian, Ubuntu: sudo apt-get install python3-numpy"
        print(f"generate.py: missing: numpy for {sys.executable}; install it ({advice})", file=sys.stderr)
        return 2
    directory = HERE / "generated" / name
    job = directory / "job.yml"
    if job.exists() and job.read_text().startswith(f"# {marker(scale)}\n"):
        print(f"{job}: up to date")
        return 0
    directory.mkdir(parents=True, exist_ok=True)
    job.unlink(missing_ok=True)
    write_fragments(directory, scale)
    job.write_text(job_text(scale))
    print(job)
    return 0


if __name__ == "__main__":
    sys.exit(main())
