"""The 1000genome template: each tool against a plain calculation, over FIFOs, and in two workflow engines."""

from __future__ import annotations

import gzip
import importlib
import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

from lab import forked
from lab.genomes import (
    MEMBERS,
    SCRIPTS,
    TEMPLATE,
    call,
    carriers_in,
    expected_carriers,
    expected_sifted,
    job_times,
    read_rows,
    succeed,
    write_annotation,
    write_vcf,
)

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module", params=["GT", "GT:DS"])
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vcf, annotation, population in a directory, and what the first three steps make of them."""
    tmp_path = tmp_path_factory.mktemp("inputs")
    write_vcf(tmp_path / "vcf", request.param)
    write_annotation(tmp_path / "annotation", tmp_path / "vcf")
    (tmp_path / "population").write_text("\n".join([*MEMBERS, "unknown"]) + "\n")
    for part in ("1of3", "2of3", "3of3"):
        succeed("individuals", tmp_path / "vcf", part, tmp_path / part)
    succeed("individuals_merge", tmp_path / "merged.gz", *(tmp_path / f"{n}of3" for n in (1, 2, 3)))
    succeed("sifting", tmp_path / "annotation", tmp_path / "sifted")
    return tmp_path


def test_merged_ranges_hold_the_carriers_of_every_variant(inputs: Path) -> None:
    expected = expected_carriers(inputs / "vcf")
    assert len(expected) > 10
    assert carriers_in(inputs / "merged.gz") == expected


@pytest.mark.parametrize("parts", [1, 2, 7, 30, 60, 500])
@pytest.mark.parametrize("width", [20, None], ids=["equal lines", "lines of any length"])
def test_each_line_is_in_exactly_one_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, width: int | None
) -> None:
    """With 60 lines of equal length and 30 or 60 parts, each part begins exactly where a line does."""
    head = b"##INFO=<ID=EUR_AF,\n#CHROM\tPOS\n"
    source = random.Random(parts)
    body = b"".join(b"%d\n" % 10 ** (width or source.randint(2, 90)) for _ in range(60))
    (tmp_path / "vcf").write_bytes(head + body)
    monkeypatch.syspath_prepend(str(SCRIPTS))
    individuals = importlib.import_module("individuals")
    lines: list[bytes] = []
    for part in range(1, parts + 1):
        with open(tmp_path / "vcf", "rb") as vcf:
            individuals.read_header(vcf, "EUR_AF")
            lines += individuals.lines_of_range(vcf, part, parts)
    assert b"".join(lines) == body


def test_sifting_takes_the_lowest_score(inputs: Path) -> None:
    expected = expected_sifted(inputs / "annotation")
    assert len(expected) > 10
    assert {(row[0], row[2], row[3]): (row[4], row[5]) for row in read_rows(inputs / "sifted")} == expected


def test_mutation_overlap(inputs: Path) -> None:
    outputs = [inputs / name for name in ("individuals", "pairs", "genes")]
    names = [item for path in outputs for item in (f"--{path.name}", path)]
    succeed("mutation_overlap", inputs / "merged.gz", inputs / "sifted", inputs / "population", *names)
    sifted = expected_sifted(inputs / "annotation")
    carriers = {key: value for key, value in expected_carriers(inputs / "vcf").items() if key in sifted}
    variants = {name: {key for key, value in carriers.items() if name in value} for name in MEMBERS}
    assert dict(read_rows(outputs[0])) == {name: str(len(found)) for name, found in variants.items()}
    pairs = Counter(len(variants[a] & variants[b]) for a, b in itertools.combinations(MEMBERS, 2))
    assert [tuple(map(int, row)) for row in read_rows(outputs[1])] == sorted(pairs.items())
    holders: dict[str, set[str]] = {}
    for key, value in carriers.items():
        holders.setdefault(sifted[key][0], set()).update(value & set(MEMBERS))
    shared = {(a, b): len(holders[a] & holders[b]) for a, b in itertools.combinations(sorted(holders), 2)}
    assert {(a, b): int(n) for a, b, n in read_rows(outputs[2])} == {key: n for key, n in shared.items() if n}


def test_frequency_of_the_whole_population_is_exact(inputs: Path) -> None:
    """A group as large as the population leaves nothing to chance."""
    arguments = [
        "--draws",
        3,
        "--group",
        len(MEMBERS),
        "--histograms",
        inputs / "h",
        "--summary",
        inputs / "s",
    ]
    succeed("frequency", inputs / "merged.gz", inputs / "sifted", inputs / "population", *arguments)
    sifted = expected_sifted(inputs / "annotation")
    carriers = expected_carriers(inputs / "vcf")
    every = Counter(len(value & set(MEMBERS)) for value in carriers.values())
    scored = Counter(len(value & set(MEMBERS)) for key, value in carriers.items() if key in sifted)
    one_draw = [(n, every[n], scored[n]) for n in range(1, len(MEMBERS) + 1)]
    assert [tuple(map(int, row[1:])) for row in read_rows(inputs / "h")] == 3 * one_draw
    assert [[float(value) for value in row] for row in read_rows(inputs / "s")] == [
        [n, a, 0, b, 0] for n, a, b in one_draw
    ]


def test_frequency_of_groups_has_the_expected_mean(inputs: Path) -> None:
    """With groups of 2 of n, a variant with k carriers has both of them with probability k(k-1) / n(n-1)."""
    arguments = ["--draws", 3000, "--group", 2, "--histograms", inputs / "h", "--summary", inputs / "s"]
    succeed("frequency", inputs / "merged.gz", inputs / "sifted", inputs / "population", *arguments)
    counts = [len(value & set(MEMBERS)) for value in expected_carriers(inputs / "vcf").values()]
    size = len(MEMBERS)
    exact = sum(k * (k - 1) for k in counts) / (size * (size - 1))
    draws = [int(row[2]) for row in read_rows(inputs / "h") if row[1] == "2"]
    mean, deviation = (float(value) for value in read_rows(inputs / "s")[1][1:3])
    assert mean == pytest.approx(statistics.fmean(draws), abs=1e-4)
    assert deviation == pytest.approx(statistics.pstdev(draws), abs=1e-4)
    assert abs(mean - exact) < 5 * deviation / len(draws) ** 0.5


def test_merge_writes_while_its_input_still_grows(tmp_path: Path) -> None:
    """Rows can be read from the compressed output before the input has ended."""
    write_vcf(tmp_path / "vcf", "GT", records=3000)
    succeed("individuals", tmp_path / "vcf", "1of1", tmp_path / "part")
    content = (tmp_path / "part").read_bytes()
    fifo, output = tmp_path / "growing", tmp_path / "growing.gz"
    os.mkfifo(fifo)
    command = [sys.executable, "-S", "-E", str(SCRIPTS / "individuals_merge.py"), str(output), str(fifo)]
    with subprocess.Popen(command) as merge, open(fifo, "wb", buffering=0) as stream:
        stream.write(content)
        deadline = time.monotonic() + 20
        while not output.exists() or content.splitlines()[200] not in readable(output):
            assert time.monotonic() < deadline, "no row came out while the input was open"
            time.sleep(0.02)
        assert merge.poll() is None
    assert merge.returncode == 0
    assert gzip.decompress(output.read_bytes()) == content


def readable(path: Path) -> bytes:
    """The content that can be decompressed from a gzip file that is still being written."""
    return zlib.decompressobj(wbits=31).decompress(path.read_bytes())


@pytest.mark.parametrize("cut", [1, 8, 60])
def test_truncated_streams_are_errors(inputs: Path, cut: int) -> None:
    for name, script in (("merged.gz", "frequency"), ("1of3", "individuals_merge")):
        (inputs / "cut").write_bytes((inputs / name).read_bytes()[:-cut])
        outputs = ["--histograms", inputs / "h", "--summary", inputs / "s"]
        rest = [inputs / "cut", inputs / "sifted", inputs / "population", *outputs]
        result = call(script, *(rest if script == "frequency" else [inputs / "o", inputs / "cut"]))
        assert result.returncode == 1
        assert "incomplete" in result.stderr or "truncated" in result.stderr


def generate(directory: Path, *arguments: str) -> Path:
    """A copy of the template in `directory`, with input generated by the given arguments."""
    ignored = shutil.ignore_patterns("generated", "run", "__pycache__")
    shutil.copytree(TEMPLATE, directory, ignore=ignored)
    subprocess.run([sys.executable, "generate.py", *arguments], cwd=directory, check=True, timeout=60)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.long
@pytest.mark.parametrize("preset", ["small", "real"])
def test_cwltool_and_streamflow_agree(tmp_path: Path, preset: str) -> None:
    work = generate(tmp_path / "template", preset)
    job = f"generated/{preset}/job.yml"
    ran = forked.run("cwltool", "--quiet", "--outdir", tmp_path / "cwltool", "main.cwl", job, cwd=work, seconds=140)
    assert ran.returncode == 0, ran.stderr
    run_streamflow(work, "streamflow.yml", job, tmp_path / "streamflow")
    results = contents(tmp_path / "cwltool")
    assert len(results) == {"small": 2 * (2 + 2 * 5), "real": 2 + 3 * 5}[preset]
    assert results == contents(tmp_path / "streamflow")


def run_streamflow(work: Path, file: str, job: str, outdir: Path) -> str:
    """Run the workflow on another job with one of the template's StreamFlow files; return what was logged."""
    configuration = work / file
    configuration.write_text(configuration.read_text().replace("generated/demo/job.yml", job))
    result = forked.run("streamflow", "run", "--outdir", outdir, configuration, cwd=work, seconds=110)
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


@pytest.mark.timeout(300)
@pytest.mark.skipif(not (BIN / "sfio-node").exists(), reason="sfio-node is not installed")
def test_the_whole_chain_streams_with_identical_results(tmp_path: Path) -> None:
    """Identical results alone would not show it: each reader must have started before its producer ended."""
    work = generate(tmp_path / "template", "demo", "--records", "3000", "--draws", "50")
    run_streamflow(work, "streamflow.yml", "generated/demo/job.yml", tmp_path / "plain")
    log = run_streamflow(work, "streamflow-io.yml", "generated/demo/job.yml", tmp_path / "streaming")
    assert "WARNING" not in log
    assert contents(tmp_path / "streaming") == contents(tmp_path / "plain")
    plain, streaming = (job_times(work / "run" / name) for name in ("plain.db", "streaming.db"))
    for producer, reader in (
        ("individuals", "individuals_merge"),
        ("individuals_merge", "mutation_overlap"),
        ("individuals_merge", "frequency"),
    ):
        assert min(start for start, _ in plain[reader]) >= max(end for _, end in plain[producer])
        assert min(start for start, _ in streaming[reader]) < max(end for _, end in streaming[producer])
