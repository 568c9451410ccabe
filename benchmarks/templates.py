"""The templates in `workflows/`, as a user runs them: plain, and with streams."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .model import Comparison
from .processes import run
from .workflows import streamflow, tree_digest
from .workload import Variant, Workload

WORKFLOWS = Path(__file__).resolve().parent.parent / "workflows"
GENOMES = WORKFLOWS / "1000genome"
VARIANT_CALLING_DELIVERIES = ("stream",) * 8


def _variants(
    workflow: Path, settings: Path, deliveries: Sequence[str], digest: Callable[[Path], str] = tree_digest
) -> Sequence[Variant]:
    return (
        streamflow("plain", workflow, settings=settings, digest=digest),
        streamflow("streaming", workflow, {}, deliveries, settings, digest),
    )


def _thousand_genomes(directory: Path) -> Sequence[Variant]:
    return _variants(GENOMES / "main.cwl", prepare_genotypes(directory), ["stream"] * 5)


def _thousand_genomes_directories(directory: Path) -> Sequence[Variant]:
    return _variants(GENOMES / "directories.cwl", prepare_genotypes(directory), [*["stream"] * 2, *["gate"] * 3])


def prepare_genotypes(directory: Path, variants: int | None = None) -> Path:
    """Generate the input of the 1000 Genomes template, if it is not there; return its job file.

    :param directory: for what that prints
    :param variants: how many, if not as many as in the demonstration
    """
    name, how_many = ("demo", []) if variants is None else (f"{variants}", ["--records", f"{variants}"])
    run([[sys.executable, str(GENOMES / "generate.py"), name, *how_many]], directory)
    return GENOMES / "generated" / name / "job.yml"


def _variant_calling(directory: Path) -> Sequence[Variant]:
    workflow, settings = prepare_variant_calling(directory)
    return _variants(workflow, settings, VARIANT_CALLING_DELIVERIES, variants_digest)


def prepare_variant_calling(directory: Path, pairs: int | None = None) -> tuple[Path, Path]:
    """Generate the input of the variant-calling template, if it is not there; return its workflow and its job file.

    :param directory: for what that prints, and another job file
    :param pairs: of reads, if not as many as in the demonstration
    :raises CommandError: if it cannot be generated here
    """
    template = WORKFLOWS / "variant-calling"
    prepare = [sys.executable, str(template / "prepare.py")]
    demo = template / "job-demo.yml"
    if pairs is None:
        run([prepare], directory)
        return template / "variant-calling.cwl", demo
    place = template / "generated" / f"{pairs}"
    run([[*prepare, "--reads", f"{pairs}", "--directory", str(place)]], directory)
    job = directory / f"job-{pairs}.yml"
    job.write_text(demo.read_text(encoding="utf-8").replace("path: generated/", f"path: {place}/"), encoding="utf-8")
    return template / "variant-calling.cwl", job


def variants_digest(directory: Path) -> str:
    """Return a digest of records and headers, without header lines that quote paths: the template's own `compare.py`
    compares the same.
    """
    spec = importlib.util.spec_from_file_location("compare", WORKFLOWS / "variant-calling" / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    digest = hashlib.sha256()
    for path in sorted(path for path in directory.iterdir() if path.name.endswith(compare.SUFFIXES)):
        digest.update(path.name.encode() + b"\0")
        for line in compare.lines(path):
            digest.update(line)
    return digest.hexdigest()


def _comparison(at_most: float) -> Comparison:
    return Comparison(name="streaming / plain", variant="streaming", baseline="plain", at_most=at_most)


THOUSAND_GENOMES = Workload(
    "1000genome", "the template workflows/1000genome on 50,000 variants", _thousand_genomes, (_comparison(0.999),)
)
THOUSAND_GENOMES_DIRECTORIES = Workload(
    "1000genome-directories",
    "the same with directories of 2,504 files between the steps, read at the gate",
    _thousand_genomes_directories,
    (_comparison(0.999),),
)
VARIANT_CALLING = Workload(
    "variant-calling",
    "the template workflows/variant-calling on 250,000 pairs of reads",
    _variant_calling,
    (_comparison(0.70),),
)
