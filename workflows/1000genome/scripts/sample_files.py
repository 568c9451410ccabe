"""The directories that join the steps of the variant `directories.cwl`: one file per sample, with what it carries.

    samples.txt     the names of the samples, one per line; written first
    HG00096.tsv     a line per variant: POS<TAB>REF<TAB>ALT<TAB>ID<TAB>AF; may be compressed (HG00096.tsv.gz)
    HG00097.tsv     ...

The files are written one after the other, in the order of `samples.txt`, each in one go. Nobody lists a directory: who
asks for the files by name, in that order, can follow a directory that is still being written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from carriers import InputError, read_lines

SAMPLES = "samples.txt"
PLAIN = ".tsv"
COMPRESSED = ".tsv.gz"


def write_directory(
    directory: str, samples: list[bytes], files: Iterable[tuple[bytes, bytes]], suffix: str = PLAIN
) -> None:
    """Make a directory, with the list of samples and then the given files, as name and content.

    Raises InputError if a name cannot be that of a file.
    """
    if strange := next((name for name in samples if b"/" in name or not name), None):
        raise InputError(f"the sample name '{strange.decode()}' cannot be the name of a file")
    os.mkdir(directory)
    _write(f"{directory}/{SAMPLES}", b"".join(name + b"\n" for name in samples))
    for name, content in files:
        _write(f"{directory}/{name.decode()}{suffix}", content)


def _write(path: str, content: bytes) -> None:
    # Unbuffered, as there is just one write.
    with open(path, "wb", buffering=0) as file:
        file.write(content)


def read_samples(directory: str) -> list[bytes]:
    """The samples of a directory, in the order in which their files are written."""
    return list(read_lines(f"{directory}/{SAMPLES}"))


def read_content(directory: str, name: bytes) -> bytes:
    """The lines of a sample's file that is not compressed. Raises InputError if they end too early."""
    path = f"{directory}/{name.decode()}{PLAIN}"
    with open(path, "rb", buffering=0) as file:
        content = file.read()
    if content and not content.endswith(b"\n"):
        raise InputError(f"{path}: the last line is incomplete (no newline at the end of the file)")
    return content


def read_variants(directory: str, name: bytes) -> list[bytes]:
    """The variants of a sample's compressed file, in the form of `read_sifted`: POS, REF and ALT, joined by tabs.

    Raises InputError if the data end too early.
    """
    return [line.rsplit(b"\t", 2)[0] for line in read_lines(f"{directory}/{name.decode()}{COMPRESSED}")]


def position(line: bytes) -> int:
    """Where a variant is on its chromosome."""
    return int(line.split(b"\t", 1)[0])
