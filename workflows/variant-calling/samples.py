#!/usr/bin/env python3
"""Prepare the input of checkpoints.cwl: tools, reference, simulated reads of several samples, the job file.

Everything is written to one directory (default: `generated/samples/` beside this script): the reference, a directory of
reads for each sample as prepare.py simulates them, and job.yml. The same arguments give the same reads.

Exit codes: 0 done, 2 something is missing that this script cannot install (the message says what to do).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import prepare
from prepare import MissingError, Simulation


class Settings(NamedTuple):
    """What determines the reads of all samples, together with the reference."""

    samples: int
    pairs: int
    seed: int

    @property
    def names(self) -> list[str]:
        return [f"S{number:02d}" for number in range(1, self.samples + 1)]


def job_text(settings: Settings) -> str:
    """The job file, with paths relative to it."""
    names = settings.names
    reads = [
        line
        for mate in (1, 2)
        for line in (
            f"reads_{mate}:",
            *(f"  - {{class: File, path: {name}/simulated_{mate}.fq.gz}}" for name in names),
        )
    ]
    return "\n".join(
        [
            "reference: {class: File, path: lambda_virus.fa}",
            f"samples: [{', '.join(names)}]",
            "read_groups:",
            *(rf"  - '@RG\tID:{name}\tSM:{name}'" for name in names),
            *reads,
            "reseed_ratio: 10",
            "reseed_occurrence: 0",
            "max_depth: 8000",
            "",
        ]
    )


def prepare_samples(directory: Path, settings: Settings, examples_directory: Path | None = None) -> None:
    """Fill `directory`; what was made with the same settings is kept.

    Raises:
        MissingError: the reference cannot be had.
    """
    made_with = directory / "samples.json"
    content = json.dumps(settings._asdict()) + "\n"
    if made_with.is_file() and made_with.read_text() == content:
        return
    directory.mkdir(parents=True, exist_ok=True)
    made_with.unlink(missing_ok=True)
    reference = directory / "lambda_virus.fa"
    with prepare.examples(examples_directory) as source:
        prepare.copy_example(source, "reference/lambda_virus.fa", reference)
    for number, name in enumerate(settings.names):
        (directory / name).mkdir(exist_ok=True)
        prepare.simulate(reference, directory / name, Simulation(settings.pairs, settings.seed + number))
    (directory / "job.yml").write_text(job_text(settings))
    made_with.write_text(content)


def several(text: str) -> int:
    """Parse the number of samples."""
    value = int(text)
    if not 2 <= value <= 99:
        raise argparse.ArgumentTypeError(f"{value} is not from 2 to 99")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Prepare the input of checkpoints.cwl.")
    parser.add_argument("--samples", type=several, default=8, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--reads",
        type=prepare.positive,
        default=20_000,
        metavar="N",
        help="pairs of reads of each sample (default: %(default)s)",
    )
    parser.add_argument("--seed", type=prepare.positive, default=42, help="of the simulation (default: %(default)s)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(__file__).resolve().parent / "generated" / "samples",
        help="where the files go (default: %(default)s)",
    )
    parser.add_argument("--examples", type=Path, help="example directory of bowtie2 (default: Debian's)")
    parser.add_argument("--no-install", action="store_true", help="never install packages, not even as root")
    options = parser.parse_args(arguments)
    try:
        if packages := prepare.missing_packages():
            if options.no_install:
                raise MissingError(f"missing packages: {' '.join(packages)}")
            prepare.install(packages)
        prepare_samples(options.directory, Settings(options.samples, options.reads, options.seed), options.examples)
    except MissingError as error:
        print(f"samples.py: {error}", file=sys.stderr)
        return 2
    print(f"{options.directory}: {options.samples} samples, {options.reads:,} simulated pairs each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
