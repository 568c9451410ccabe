"""The 1000genome template with directories, against a plain calculation and main.cwl."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.genomes import (
    MEMBERS,
    SAMPLES,
    SCRIPTS,
    call,
    expected_carriers,
    succeed,
    write_annotation,
    write_vcf,
)
from lab.templates import Template, check_files_differ_by_scheduler, contents, import_script

PARTS = ("1of3", "2of3", "3of3")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vcf, annotation, population in a directory, and what the first three steps make of them."""
    tmp_path = tmp_path_factory.mktemp("inputs")
    write_vcf(tmp_path / "vcf", "GT:DS")
    write_annotation(tmp_path / "annotation", tmp_path / "vcf")
    (tmp_path / "population").write_text("\n".join(["unknown", *MEMBERS]) + "\n")
    for part in PARTS:
        succeed("individuals_directory", tmp_path / "vcf", part, tmp_path / part)
    succeed("individuals_merge_directory", tmp_path / "merged", *(tmp_path / part for part in PARTS))
    succeed("sifting", tmp_path / "annotation", tmp_path / "sifted")
    return tmp_path


def test_each_sample_has_a_file_with_its_variants(inputs: Path) -> None:
    expected = expected_carriers(inputs / "vcf")
    names = {"samples.txt", *(f"{name}.tsv" for name in SAMPLES)}
    assert all({path.name for path in (inputs / part).iterdir()} == names for part in PARTS)
    assert {path.name for path in (inputs / "merged").iterdir()} == {
        "samples.txt",
        *(f"{name}.tsv.gz" for name in SAMPLES),
    }
    assert (inputs / "merged" / "samples.txt").read_text().split() == SAMPLES
    for name in SAMPLES:
        content = gzip.decompress((inputs / "merged" / f"{name}.tsv.gz").read_bytes())
        assert content == b"".join((inputs / part / f"{name}.tsv").read_bytes() for part in PARTS)
        rows = [line.split("\t") for line in content.decode().splitlines()]
        assert [(row[0], row[1], row[2]) for row in rows] == [key for key, value in expected.items() if name in value]
        assert all(row[3].startswith("rs") and 0 <= float(row[4]) < 1 for row in rows)


@pytest.mark.parametrize(
    ("script", "outputs", "options"),
    [
        ("mutation_overlap", ("individuals", "pairs", "genes"), ()),
        ("frequency", ("histograms", "summary"), ("--draws", 20, "--group", 4)),
        ("frequency", ("histograms", "summary"), ("--draws", 2, "--group", len(MEMBERS))),
    ],
)
def test_consumers_find_what_those_of_the_other_layout_find(
    inputs: Path, tmp_path: Path, script: str, outputs: tuple[str, ...], options: tuple[object, ...]
) -> None:
    succeed("individuals", inputs / "vcf", "1of1", tmp_path / "carriers")
    for name, merged in ((script, tmp_path / "carriers"), (f"{script}_directory", inputs / "merged")):
        written = [item for output in outputs for item in (f"--{output}", tmp_path / f"{name}.{output}")]
        succeed(name, merged, inputs / "sifted", inputs / "population", *written, *options)
    for output in outputs:
        content = (tmp_path / f"{script}_directory.{output}").read_text()
        assert len(content.splitlines()) > 3
        assert content == (tmp_path / f"{script}.{output}").read_text()


def test_counting_all_variants_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    frequency = import_script(SCRIPTS / "frequency_directory.py")
    source = random.Random(3)
    sets = [source.getrandbits(200) & source.getrandbits(200) for _ in range(21)]
    among = source.getrandbits(200)
    carriers = frequency.Carriers()
    for variants in sets:
        carriers.add(variants)
    counts = Counter(sum(variants >> bit & 1 for variants in sets) for bit in range(200) if among >> bit & 1)
    assert carriers.histogram(21, among) == [0, *(counts[count] for count in range(1, 22))]


def test_the_files_of_a_directory_come_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reader that follows a directory finds each file complete before the next is there, and the list of samples
    first.
    """
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sample_files = import_script(SCRIPTS / "sample_files.py")
    seen: list[dict[str, bytes]] = []

    def files() -> Iterator[tuple[bytes, bytes]]:
        for name in (b"a", b"b"):
            seen.append(contents(tmp_path / "d"))
            yield name, name + b"\n"

    sample_files.write_directory(str(tmp_path / "d"), [b"a", b"b"], files())
    seen.append(contents(tmp_path / "d"))
    samples = {"samples.txt": b"a\nb\n"}
    assert seen == [samples, {**samples, "a.tsv": b"a\n"}, {**samples, "a.tsv": b"a\n", "b.tsv": b"b\n"}]


@pytest.mark.parametrize("cut", [1, 20])
def test_files_that_end_too_early_are_errors(inputs: Path, tmp_path: Path, cut: int) -> None:
    plain, compressed = tmp_path / "part", tmp_path / "merged"
    for source, copy, name in ((inputs / "1of3", plain, "S2.tsv"), (inputs / "merged", compressed, "S2.tsv.gz")):
        copy.mkdir()
        for path in source.iterdir():
            (copy / path.name).write_bytes(path.read_bytes()[: -cut if path.name == name else None])
    written = ["--histograms", tmp_path / "h", "--summary", tmp_path / "s"]
    for result in (
        call("individuals_merge_directory", tmp_path / "o", plain),
        call("frequency_directory", compressed, inputs / "sifted", inputs / "population", *written),
    ):
        assert result.returncode == 1
        assert "incomplete" in result.stderr or "truncated" in result.stderr


def test_streamflow_files_differ_by_scheduler(tmp_path: Path) -> None:
    template = Template.copy("1000genome", tmp_path)
    plain, io_aware = (template.directory / f"streamflow{way}-directories.yml" for way in ("", "-io"))
    check_files_differ_by_scheduler(plain, io_aware)
