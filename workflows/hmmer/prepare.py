#!/usr/bin/env python3
"""Prepare the input of the hmmer template: tools, profiles, a sequence database of any size, the job file.

Everything is written to one directory (default: `generated/` beside this script):

    models.hmm       the profiles of HMMER's tutorial: globins4, Pkinase, fn3
    database.fa      GENERATED protein sequences; one in fifty holds a mutated copy of a sequence of the tutorial
    job.yml          the job file
    prepared.json    what the files were made with; files that fit are kept

The same arguments give the same bytes. Not for biology: no sequence of the database exists in nature.

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

TOOL_PACKAGE = "hmmer"
EXAMPLES_PACKAGE = "hmmer-examples"
TUTORIAL_IN_PACKAGE = Path("usr/share/doc/hmmer/examples/tutorial")
MODELS = ("globins4", "Pkinase", "fn3")
FAMILIES = {"globins4": "globins45.fa", "Pkinase": "Pkinase.sto", "fn3": "fn3.sto"}
RELATIVES = 0.02  # part of the sequences that hold a mutated copy
MUTATIONS = (0.05, 0.65)  # part of its residues that are replaced, drawn between these
LENGTHS = (100, 700)  # residues of a sequence
LINE = 60
# Residues per 256, about as frequent as in UniProtKB/Swiss-Prot.
COMPOSITION = {
    **{"A": 21, "R": 14, "N": 10, "D": 14, "C": 4, "Q": 10, "E": 17, "G": 18, "H": 6, "I": 15},
    **{"L": 25, "K": 15, "M": 6, "F": 10, "P": 12, "S": 17, "T": 14, "W": 3, "Y": 7, "V": 18},
}
RESIDUES = "".join(residue * count for residue, count in COMPOSITION.items()).encode()


class MissingError(Exception):
    """Something is missing that this script cannot get by itself; the message says what to do."""


class Settings(NamedTuple):
    """What determines the database and the job file."""

    fragments: int
    fragment_size: float  # MB
    seed: int


def install() -> None:
    """Install HMMER when it is not there, this is root, and the system has apt-get.

    Raises:
        MissingError: it cannot be installed from here, or apt-get failed.
    """
    if shutil.which("hmmsearch") is not None:
        return
    advice = f"install it (Debian, Ubuntu: sudo apt-get install {TOOL_PACKAGE}; conda: channel bioconda)"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingError(f"missing: hmmsearch; {advice}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "--yes", "--no-install-recommends", TOOL_PACKAGE]
    if subprocess.run(command, env=environment, stdout=sys.stderr).returncode == 0:
        return
    subprocess.run(["apt-get", "update"], env=environment, stdout=sys.stderr)  # no or old package lists
    if subprocess.run(command, env=environment, stdout=sys.stderr).returncode != 0:
        raise MissingError(f"apt-get could not install {TOOL_PACKAGE}; {advice}")


@contextmanager
def tutorial(directory: Path | None) -> Iterator[Path]:
    """Give the tutorial directory of HMMER: as told, as installed, or unpacked from its package for the time of use.

    Raises:
        MissingError: it is in neither place and cannot be downloaded.
    """
    candidate = directory if directory is not None else Path("/") / TUTORIAL_IN_PACKAGE
    if example_file(candidate, "globins4.hmm") is not None:
        yield candidate
        return
    if directory is not None:
        raise MissingError(f"{directory}: no globins4.hmm, not the tutorial of HMMER")
    with tempfile.TemporaryDirectory() as unpacked:
        download_examples(Path(unpacked))
        yield Path(unpacked) / TUTORIAL_IN_PACKAGE


def download_examples(directory: Path) -> None:
    """Download the Debian package with the tutorial and unpack it in `directory`; needs no root.

    Raises:
        MissingError: apt-get or dpkg-deb is missing or failed.
    """
    advice = (
        f"install {EXAMPLES_PACKAGE} (sudo apt-get install {EXAMPLES_PACKAGE}),"
        " or unpack the source of HMMER and give its directory `tutorial` with --tutorial"
    )
    command = ["apt-get", "download", EXAMPLES_PACKAGE]
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise MissingError(f"missing: the tutorial of HMMER; {advice}")
    if subprocess.run(command, cwd=directory, stdout=sys.stderr).returncode != 0:
        raise MissingError(f"missing: the tutorial of HMMER, and apt-get cannot download it; {advice}")
    (package,) = directory.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(directory)], check=True)


def example_file(directory: Path, name: str) -> Path | None:
    """Return the file `name` of the tutorial, compressed or not, if it is there."""
    return next((path for path in (directory / name, directory / f"{name}.gz") if path.is_file()), None)


def read_example(directory: Path, name: str) -> str:
    """Return the text of a file of the tutorial.

    Raises:
        MissingError: it is not there.
    """
    path = example_file(directory, name)
    if path is None:
        raise MissingError(f"{directory}: no {name}")
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def read_sequences(text: str) -> list[bytes]:
    """Return the sequences of a FASTA file or of a Stockholm alignment, without gaps."""
    sequences: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith(">"):
            name = line
            sequences[name] = ""
        elif name:
            sequences[name] += line.strip()
        elif line.strip() and line[0] not in "#/":
            aligned, residues = line.split()
            sequences[aligned] = sequences.get(aligned, "") + residues
    unaligned = (sequence.upper().replace(".", "").replace("-", "") for sequence in sequences.values())
    return [sequence.encode() for sequence in unaligned]


def mutate(sequence: bytes, source: random.Random) -> bytes:
    """Replace some residues by random ones."""
    rate = source.uniform(*MUTATIONS)
    return bytes(source.choice(RESIDUES) if source.random() < rate else residue for residue in sequence)


def record(number: int, families: dict[str, list[bytes]], source: random.Random) -> bytes:
    """One generated sequence in FASTA format; the description says what it holds."""
    sequence = source.randbytes(source.randint(*LENGTHS)).translate(RESIDUES)
    description = "generated"
    if source.random() < RELATIVES:
        family = source.choice(list(families))
        position = source.randint(0, len(sequence))
        copy = mutate(source.choice(families[family]), source)
        sequence = sequence[:position] + copy + sequence[position:]
        description += f" {family}"
    lines = [sequence[start : start + LINE] for start in range(0, len(sequence), LINE)]
    return b"\n".join([f">target{number:09d} {description}".encode(), *lines, b""])


def write_database(path: Path, families: dict[str, list[bytes]], settings: Settings) -> None:
    """Write sequences until the fragments have their size."""
    source = random.Random(settings.seed)
    left = round(settings.fragments * settings.fragment_size * 1e6)
    number = 0
    with path.open("wb") as database:
        while left > 0:
            number += 1
            left -= database.write(record(number, families, source))


def job_text(settings: Settings) -> str:
    """The job file, with paths relative to it."""
    return "\n".join(
        [
            "models: {class: File, location: models.hmm}",
            "database: {class: File, location: database.fa}",
            f"fragments: {settings.fragments}",
            "msv_filter: 1.0         # open filters, for distant relatives: more than ten times the work",
            "viterbi_filter: 0.05",
            "forward_filter: 0.001",
            "",
        ]
    )


def prepare(directory: Path, settings: Settings, tutorial_directory: Path | None = None) -> None:
    """Fill `directory`; what was made with the same settings is kept.

    Raises:
        MissingError: the tutorial of HMMER cannot be had.
    """
    made_with = directory / "prepared.json"
    content = json.dumps(settings._asdict()) + "\n"
    if made_with.is_file() and made_with.read_text() == content:
        return
    directory.mkdir(parents=True, exist_ok=True)
    made_with.unlink(missing_ok=True)
    with tutorial(tutorial_directory) as source:
        models = "".join(read_example(source, f"{name}.hmm") for name in MODELS)
        families = {name: read_sequences(read_example(source, file)) for name, file in FAMILIES.items()}
    (directory / "models.hmm").write_text(models)
    write_database(directory / "database.fa", families, settings)
    (directory / "job.yml").write_text(job_text(settings))
    made_with.write_text(content)


def positive(text: str) -> int:
    """Parse a positive integer of the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def megabytes(text: str) -> float:
    """Parse a size of the command line."""
    value = float(text)
    if not 0.01 <= value <= 10_000:
        raise argparse.ArgumentTypeError(f"{value:g} is not from 0.01 to 10000")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Prepare the input of the hmmer template.")
    parser.add_argument("--fragments", type=positive, default=32, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--fragment-size",
        type=megabytes,
        default=3.5,
        metavar="MB",
        help="of the database; its checkpoint is this and the hits, rounded up to MiB (default: %(default)s)",
    )
    parser.add_argument("--seed", type=positive, default=42, help="of the database (default: %(default)s)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(__file__).resolve().parent / "generated",
        help="where the files go (default: %(default)s)",
    )
    parser.add_argument("--tutorial", type=Path, help="tutorial directory of HMMER (default: Debian's)")
    parser.add_argument("--no-install", action="store_true", help="never install packages, not even as root")
    options = parser.parse_args(arguments)
    try:
        if options.no_install and shutil.which("hmmsearch") is None:
            raise MissingError(f"missing packages: {TOOL_PACKAGE}")
        install()
        prepare(options.directory, Settings(options.fragments, options.fragment_size, options.seed), options.tutorial)
    except MissingError as error:
        print(f"prepare.py: {error}", file=sys.stderr)
        return 2
    print(f"{options.directory}: {options.fragments} fragments of {options.fragment_size:g} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
