"""The variants that have a SIFT score in a VCF annotated by the Variant Effect Predictor (VEP).

SIFT predicts whether a change of an amino acid harms the protein, from 0 (deleterious) to 1 (tolerated).
A variant annotated for several transcripts is listed once, with its lowest score.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from carriers import InputError, read_lines, run

SCORE = re.compile(rb"(?:deleterious|tolerated)[a-z_]*\(([0-9.eE+-]+)\)")


def csq_columns(line: bytes, path: str) -> tuple[int, int, int]:
    """Where Gene, SIFT and PolyPhen stand in a CSQ entry, from the header line that declares CSQ."""
    match = re.search(rb'Format: ([^">]+)', line)
    names = match[1].split(b"|") if match else []
    try:
        gene, sift, polyphen = (names.index(name) for name in (b"Gene", b"SIFT", b"PolyPhen"))
    except ValueError:
        raise InputError(f"{path}: the CSQ format in the header must name Gene, SIFT and PolyPhen") from None
    return gene, sift, polyphen


def lowest_score(info: bytes, columns: tuple[int, int, int]) -> tuple[float, bytes, bytes, bytes] | None:
    """(score, gene, SIFT, PolyPhen) of the transcript with the lowest score, the first of equals."""
    best: tuple[float, bytes, bytes, bytes] | None = None
    csq = next((field[4:] for field in info.split(b";") if field.startswith(b"CSQ=")), b"")
    for transcript in csq.split(b","):
        values = transcript.split(b"|")
        gene, sift, polyphen = (values[column] if column < len(values) else b"" for column in columns)
        match = SCORE.fullmatch(sift)
        if match and (best is None or float(match[1]) < best[0]):
            best = (float(match[1]), gene, sift, polyphen)
    return best


def sift(path: str) -> Iterator[bytes]:
    """A line per variant with a SIFT score. Raises InputError if the header declares no CSQ."""
    columns: tuple[int, int, int] | None = None
    yield b"#POS\tID\tREF\tALT\tGENE\tSIFT\tPOLYPHEN\n"
    for line in read_lines(path):
        if line.startswith(b"#"):
            if line.startswith(b"##INFO=<ID=CSQ,"):
                columns = csq_columns(line, path)
        elif columns is None:
            raise InputError(f"{path}: the header declares no INFO field CSQ; was it annotated by VEP?")
        elif b"tolerated" in line or b"deleterious" in line:
            _chromosome, position, identifier, reference, alternate, _quality, _filter, info = line.split(b"\t", 8)[:8]
            found = lowest_score(info, columns)
            if found:
                yield b"\t".join((position, identifier, reference, alternate, *found[1:])) + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("annotation", help="annotated VCF, plain or gzip")
    parser.add_argument("output")
    arguments = parser.parse_args()
    with open(arguments.output, "wb", buffering=1 << 16) as output:
        output.writelines(sift(arguments.annotation))


if __name__ == "__main__":
    run(main)
