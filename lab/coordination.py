"""CAPIO-CL files as people write them by hand, for the templates in `workflows/`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import NO_CONTAINERS, streamflow_file
from lab.templates import WORKFLOWS
from streamflow_io.cli import main

Document = dict[str, Any]
Run = Callable[..., tuple[int, str]]
RESULTS = ("sifted", "genes", "pairs", "individuals", "histograms", "frequency")


def subcommand(name: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a subcommand of `streamflow-io`; the exit code, and its result or its mistakes."""

    def run(*arguments: object) -> tuple[int, str]:
        code = main([name, *map(str, arguments)])
        printed, errors = capsys.readouterr()
        assert not printed or not errors
        return code, printed or errors

    return run


def application(name: str, reads: str, writes: str, **rule: object) -> Document:
    """An application with one rule for all that it writes.

    :param reads: paths, with spaces between them
    :param writes: the same
    """
    written = writes.split()
    app: Document = {"name": name, "input_stream": reads.split(), "output_stream": written}
    return app | ({"streaming": [{"name": written, **rule}]} if rule else {})


def genomes() -> Document:
    """The 1000genome template, with names as short as one would write them."""
    streamed = {"committed": "on_close", "mode": "no_update"}
    both = "*.carriers.tsv.gz *.sifted.tsv"
    return {
        "name": "genomes",
        "IO_Graph": [
            application("sifting", "", "*.sifted.tsv", **streamed),
            application("individuals", "", "chr*.*of*.tsv", **streamed),
            application("individuals_merge", "chr*.*of*.tsv", "*.carriers.tsv.gz", **streamed),
            application("mutation_overlap", both, "*.genes.tsv *.pairs.tsv *.individuals.tsv"),
            application("frequency", both, "*.histograms.tsv *.frequency.tsv"),
        ],
        "permanent": [f"*.{name}.tsv" for name in RESULTS] + ["*.carriers.tsv.gz"],
    }


def variants() -> Document:
    """The variant calling template, in the directory `/scratch`."""
    pipe: Document = {"committed": "on_termination", "mode": "no_update"}
    chain = [
        ("align", "/scratch/lambda_virus.fa /scratch/simulated_1.fq /scratch/simulated_2.fq", "aligned.sam"),
        ("fixmate", "/scratch/aligned.sam", "fixed.bam"),
        ("sort", "/scratch/fixed.bam", "sorted.bam"),
        ("markdup", "/scratch/sorted.bam", "marked.bam"),
        ("mpileup", "/scratch/lambda_virus.fa /scratch/marked.bam", "likelihoods.bcf"),
        ("call", "/scratch/likelihoods.bcf", "called.bcf"),
    ]
    return {
        "version": 1.1,
        "name": "variant-calling",
        "IO_Graph": [
            application("bwa_index", "", "/scratch/lambda_virus.fa"),
            application("faidx", "", "/scratch/lambda_virus.fa"),
            application("decompress_1", "", "/scratch/simulated_1.fq", **pipe),
            application("decompress_2", "", "/scratch/simulated_2.fq", **pipe),
            *(application(name, reads, f"/scratch/{writes}", **pipe) for name, reads, writes in chain),
            application("filter", "/scratch/called.bcf", "/scratch/variants.vcf"),
        ],
        "permanent": ["/scratch/variants.vcf", "/scratch/marked.bam"],
    }


def app(document: Document, name: str) -> Document:
    """One of its applications."""
    found: Document = next(each for each in document["IO_Graph"] if each["name"] == name)
    return found


def rule(document: Document, name: str) -> Document:
    """The rule of an application."""
    found: Document = app(document, name)["streaming"][0]
    return found


def write(path: Path, document: Document) -> Path:
    """Write a document as JSON."""
    path.write_text(json.dumps(document))
    return path


def variants_file(directory: Path, **config: object) -> Path:
    """A StreamFlow file for the variant calling template."""
    template = WORKFLOWS / "variant-calling"
    return _streamflow_file(
        directory, "variant-calling", template / "variant-calling.cwl", template / "job-demo.yml", config
    )


def genomes_file(directory: Path, document: str = "main.cwl", **config: object) -> Path:
    """A StreamFlow file for the 1000genome template: two chromosomes, two ranges, two populations."""

    def files(*names: str) -> list[Document]:
        for name in names:
            (directory / name).touch()
        return [{"class": "File", "path": str(directory / name)} for name in names]

    job = {
        "chromosomes": ["chr21", "chr22"],
        "vcf": files("21.vcf", "22.vcf"),
        "annotation": files("21.csv", "22.csv"),
        "ranges": ["1of2", "2of2"],
        "populations": files("EUR", "AFR"),
    }
    settings = write(directory / "job.json", job)
    return _streamflow_file(directory, "genomes", WORKFLOWS / "1000genome" / document, settings, config)


def _streamflow_file(directory: Path, name: str, file: Path, settings: Path, config: Document) -> Path:
    document = streamflow_file(file, settings, name=name, io=config, workflow=NO_CONTAINERS)
    return write(directory / "streamflow.yml", document)
