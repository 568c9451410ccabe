#!/usr/bin/env python3
"""Prepare the input of the variant-calling template: tools, reference, example reads, simulated reads.

Everything is written to one directory (default: `generated/` beside this script):

    lambda_virus.fa            the genome of lambda phage (NC_001416.1), from the examples of bowtie2
    example_{1,2}.fq.gz        10,000 example pairs of bowtie2
    simulated_{1,2}.fq.gz      as many pairs as asked for, drawn from the mutated reference by wgsim
    simulated.truth.tsv        the mutations that wgsim planted, so that called variants can be judged
    simulated.json             what the simulated files were made with; files that fit are kept

Exit codes: 0 done, 2 something is missing that this script cannot install (the message says what to do).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PACKAGE_OF_TOOL = {
    "bwa": "bwa",
    "samtools": "samtools",
    "wgsim": "samtools",
    "bcftools": "bcftools",
    "gzip": "gzip",
}
EXAMPLES_PACKAGE = "bowtie2-examples"
EXAMPLES_IN_PACKAGE = Path("usr/share/doc/bowtie2/examples")
READ_LENGTH = 100
DEFAULT_PAIRS = 250_000


class MissingError(Exception):
    """Something is missing that this script cannot get by itself; the message says what to do."""


class Simulation(NamedTuple):
    """What determines the simulated reads, together with the reference."""

    pairs: int
    seed: int


def missing_packages() -> list[str]:
    """Return the Debian packages of the tools that are not on the PATH, without repetition."""
    return sorted({package for tool, package in PACKAGE_OF_TOOL.items() if shutil.which(tool) is None})


def install(packages: Sequence[str]) -> None:
    """Install Debian packages when this is root on a system with apt-get.

    Raises:
        MissingError: they cannot be installed from here, or apt-get failed.
    """
    names = " ".join(packages)
    advice = f"install them (Debian, Ubuntu: sudo apt-get install {names}; conda: channel bioconda)"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingError(f"missing: {names}; {advice}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if subprocess.run(command, env=environment, stdout=sys.stderr).returncode == 0:
        return
    subprocess.run(["apt-get", "update"], env=environment, stdout=sys.stderr)  # no or old package lists
    if subprocess.run(command, env=environment, stdout=sys.stderr).returncode != 0:
        raise MissingError(f"apt-get could not install {names}; {advice}")


@contextmanager
def examples(directory: Path | None) -> Iterator[Path]:
    """Give the example directory of bowtie2: as told, as installed, or unpacked for the time of use.

    Unpacking the Debian package needs no root, and works where the system leaves documentation out of
    what it installs (containers).

    Raises:
        MissingError: it is in neither place and cannot be downloaded.
    """
    candidates = [directory] if directory is not None else [Path("/") / EXAMPLES_IN_PACKAGE]
    for candidate in candidates:
        if example_file(candidate, "reference/lambda_virus.fa") is not None:
            yield candidate
            return
    if directory is not None:
        raise MissingError(f"{directory}: no reference/lambda_virus.fa, not the examples of bowtie2")
    with tempfile.TemporaryDirectory() as unpacked:
        download_examples(Path(unpacked))
        yield Path(unpacked) / EXAMPLES_IN_PACKAGE


def download_examples(directory: Path) -> None:
    """Download the Debian package with the examples and unpack it in `directory`.

    Raises:
        MissingError: apt-get or dpkg-deb is missing or failed.
    """
    advice = (
        f"install {EXAMPLES_PACKAGE} (sudo apt-get install {EXAMPLES_PACKAGE}),"
        " or unpack the source of bowtie2 and give its directory `example` with --examples"
    )
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise MissingError(f"missing: the example data of bowtie2; {advice}")
    # Without the option apt-get complains to root that its own user may not write here.
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", EXAMPLES_PACKAGE]
    downloaded = subprocess.run(command, cwd=directory, stdout=sys.stderr).returncode == 0
    if not downloaded and os.geteuid() == 0:
        subprocess.run(["apt-get", "-qq", "update"], stdout=sys.stderr)
        downloaded = subprocess.run(command, cwd=directory, stdout=sys.stderr).returncode == 0
    if not downloaded:
        raise MissingError(f"missing: the example data of bowtie2, and apt-get cannot download it; {advice}")
    (package,) = directory.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(directory)], check=True)


def example_file(directory: Path, name: str) -> Path | None:
    """Return the example file `name`, compressed (Debian) or not (bowtie2's source), if it is there."""
    for candidate in (directory / name, directory / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    return None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path that becomes `path` when the block ends well, and is removed when it does not."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def gzip_writer(path: Path) -> Iterator[gzip.GzipFile]:
    """Open a gzip file whose bytes depend on the content alone (neither name nor time in the header)."""
    with (
        replacing(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=4) as compressed,
    ):
        yield compressed


def copy_example(directory: Path, name: str, target: Path) -> None:
    """Copy an example file to `target`, compressed if and only if the target's name ends in `.gz`.

    Raises:
        MissingError: the example directory does not hold the file.
    """
    source = example_file(directory, name)
    if source is None:
        raise MissingError(f"{directory}: no {name}")
    content = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    if target.suffix == ".gz":
        with gzip_writer(target) as compressed:
            compressed.write(content)
    else:
        with replacing(target) as temporary:
            temporary.write_bytes(content)


def quality_strings(generator: random.Random, count: int, length: int) -> list[bytes]:
    """Model quality strings of an Illumina instrument: levels 2, 12, 23 and 37, lower towards the end."""
    strings = []
    for _ in range(count):
        lower = 0.18 if generator.random() < 0.1 else 0.03  # one read in ten is a bad one
        chances = [lower + 0.12 * (position / length) ** 2 for position in range(length)]
        levels = ["F" if generator.random() > chance else generator.choice("88-#") for chance in chances]
        strings.append("".join(levels).encode())
    return strings


def simulate(reference: Path, directory: Path, simulation: Simulation) -> None:
    """Draw read pairs from the reference with wgsim, seeded: the same simulation gives the same files.

    wgsim gives every base the same quality, which makes the reads, and everything made of them, compress
    as no real reads do. Each read gets a modelled quality string instead.
    """
    generator = random.Random(simulation.seed)
    qualities = quality_strings(generator, 4096, READ_LENGTH)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        plain = [Path(scratch) / f"{mate}.fq" for mate in (1, 2)]
        options = ["-S", simulation.seed, "-N", simulation.pairs, "-1", READ_LENGTH, "-2", READ_LENGTH]
        options += ["-d", 400, "-s", 50, "-e", 0.001, "-r", 0.001, "-h"]  # -h: one haplotype, as a phage has
        command = ["wgsim", *map(str, options), str(reference), *map(str, plain)]
        truth = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for mate, path in enumerate(plain, start=1):
            with path.open("rb") as reads, gzip_writer(directory / f"simulated_{mate}.fq.gz") as compressed:
                for name, bases, separator, _ in zip(reads, reads, reads, reads, strict=True):
                    compressed.write(b"".join((name, bases, separator, generator.choice(qualities), b"\n")))
    (directory / "simulated.truth.tsv").write_bytes(truth)


def prepare(directory: Path, simulation: Simulation, examples_directory: Path | None = None) -> None:
    """Fill `directory`; simulated reads that were made with the same settings are kept.

    Raises:
        MissingError: the example data cannot be had.
    """
    directory.mkdir(parents=True, exist_ok=True)
    reference = directory / "lambda_virus.fa"
    mates = {f"reads/reads_{mate}.fq": directory / f"example_{mate}.fq.gz" for mate in (1, 2)}
    wanted = {"reference/lambda_virus.fa": reference, **mates}
    absent = {name: target for name, target in wanted.items() if not target.is_file()}
    if absent:
        with examples(examples_directory) as source:
            for name, target in absent.items():
                copy_example(source, name, target)
    record = directory / "simulated.json"
    content = json.dumps({**simulation._asdict(), "read_length": READ_LENGTH}) + "\n"
    made = [directory / name for name in ("simulated_1.fq.gz", "simulated_2.fq.gz", "simulated.truth.tsv")]
    if not (all(path.is_file() for path in made) and record.is_file() and record.read_text() == content):
        record.unlink(missing_ok=True)
        simulate(reference, directory, simulation)
        record.write_text(content)


def positive(text: str) -> int:
    """Parse a positive integer of the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Prepare the input of the variant-calling template.")
    parser.add_argument(
        "--reads",
        type=positive,
        default=DEFAULT_PAIRS,
        metavar="N",
        help="pairs of reads to simulate (default: %(default)s)",
    )
    parser.add_argument("--seed", type=positive, default=42, help="of the simulation (default: %(default)s)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(__file__).resolve().parent / "generated",
        help="where the files go (default: %(default)s)",
    )
    parser.add_argument("--examples", type=Path, help="example directory of bowtie2 (default: Debian's)")
    parser.add_argument("--no-install", action="store_true", help="never install packages, not even as root")
    options = parser.parse_args(arguments)
    try:
        if packages := missing_packages():
            if options.no_install:
                raise MissingError(f"missing packages: {' '.join(packages)}")
            install(packages)
        prepare(options.directory, Simulation(options.reads, options.seed), options.examples)
    except MissingError as error:
        print(f"prepare.py: {error}", file=sys.stderr)
        return 2
    print(f"{options.directory}: reference, 10,000 example pairs, {options.reads:,} simulated pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
