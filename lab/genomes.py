"""Small inputs for the tools of the 1000genome template, and what they should make of them."""

from __future__ import annotations

import gzip
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parents[1] / "workflows" / "1000genome"
SCRIPTS = TEMPLATE / "scripts"
Variant = tuple[str, str, str]  # position, reference, alternate

SAMPLES = [f"S{number}" for number in range(11)]
MEMBERS = SAMPLES[1:8]


def call(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-E", str(SCRIPTS / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def succeed(script: str, *arguments: object) -> None:
    result = call(script, *arguments)
    assert result.returncode == 0, result.stderr


def write_vcf(path: Path, form: str, records: int = 60) -> None:
    """A small VCF with what real ones hold: indels, several alternates, missing alleles and frequencies."""
    source = random.Random(form)
    lines = ["##fileformat=VCFv4.1", '##INFO=<ID=EUR_AF,Number=A,Type=Float,Description="f">']
    lines.append("\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *SAMPLES]))
    for number in range(records):
        reference, alternate = source.choice(
            [("A", "G"), ("C", "T"), ("G", "A"), ("AT", "A"), ("A", "G,T"), ("A", "<DEL>")]
        )
        info = source.choice(
            ["AC=3;EUR_AF=0.2", "EUR_AF=0.7;AC=1", "AC=1", "X_EUR_AF=0.1;EUR_AF=0.5;DB", "EUR_AF=1e-3"]
        )
        genotypes = [source.choice(["0|0", "0|1", "1|0", "1|1", ".|.", "1/0"]) for _ in SAMPLES]
        if number == 7:
            genotypes = ["0|0"] * len(SAMPLES)
        if form != "GT":
            genotypes = [f"{genotype}:{source.random():.3f}" for genotype in genotypes]
        fields = [
            "9",
            str(100 + 3 * number),
            f"rs{number}",
            reference,
            alternate,
            "100",
            "PASS",
            info,
            form,
            *genotypes,
        ]
        lines.append("\t".join(fields))
    path.write_text("\n".join(lines) + "\n")


def write_annotation(path: Path, vcf: Path) -> None:
    source = random.Random(5)
    lines = [
        '##INFO=<ID=CSQ,Number=.,Type=String,Description="c. Format: Allele|Gene|SIFT|PolyPhen">',
        "#CHROM",
    ]
    for fields in (line.split("\t") for line in vcf.read_text().splitlines() if line[0] != "#"):
        choices = [
            "G|GA|tolerated(0.4)|benign",
            "G|GB|deleterious(0.01)|",
            "G|GC||",
            "G|GD|deleterious_low_confidence(0.03)|x",
        ]
        info = "AC=1;CSQ=" + ",".join(source.choices(choices, k=source.randint(1, 3)))
        lines.append("\t".join([*fields[:7], source.choice([info, "AC=2", "CSQ=G|GC||"])]))
    path.write_text("\n".join(lines) + "\n")


def expected_carriers(vcf: Path) -> dict[Variant, set[str]]:
    """Straight from the definition, one genotype at a time."""
    found = {}
    for line in vcf.read_text().splitlines():
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if fields[3] not in list("ACGT") or fields[4] not in list("ACGT"):
            continue
        frequency = dict(item.split("=") for item in fields[7].split(";") if "=" in item).get("EUR_AF", "0")
        minor = "0" if float(frequency) >= 0.5 else "1"
        carriers = {name for name, genotype in zip(SAMPLES, fields[9:], strict=True) if genotype[0] == minor}
        if carriers:
            found[fields[1], fields[3], fields[4]] = carriers
    return found


def expected_sifted(annotation: Path) -> dict[Variant, tuple[str, str]]:
    """Gene and SIFT of the transcript with the lowest score."""
    found = {}
    for line in annotation.read_text().splitlines():
        fields = line.split("\t")
        scored = []
        for transcript in fields[-1].partition("CSQ=")[2].split(",") if line[0] != "#" else []:
            _allele, gene, sift, _polyphen = (transcript + "|||").split("|")[:4]
            if "(" in sift:
                scored.append((float(sift.split("(")[1][:-1]), gene, sift))
        if scored:
            found[fields[1], fields[3], fields[4]] = min(scored, key=lambda item: item[0])[1:]
    return found


def read_rows(path: Path) -> list[list[str]]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


def carriers_in(path: Path) -> dict[Variant, set[str]]:
    return {(row[1], row[3], row[4]): set(row[6].split(",")) for row in read_rows(path)}


def job_times(database: Path) -> dict[str, list[tuple[int, int]]]:
    """Start and end of every job, by step."""
    times: dict[str, list[tuple[int, int]]] = {}
    query = "SELECT s.name, e.start_time, e.end_time FROM execution e JOIN step s ON e.step = s.id"
    with sqlite3.connect(database) as connection:
        for name, start, end in connection.execute(query):
            times.setdefault(str(name).rpartition("/")[2], []).append((int(start), int(end)))
    return times
