"""The templates in `workflows/`, as a user runs them: plain, and with streams."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.templates import WORKFLOWS, import_script

from .model import Comparison
from .processes import run
from .workflows import StreamFlowRun, streamflow, tree_digest
from .workload import Variant, Workload

README = WORKFLOWS.parent / "README.md"
GENOMES = WORKFLOWS / "1000genome"
VARIANT_CALLING_DELIVERIES = ("stream",) * 8


def _variants(
    workflow: Path, settings: Path, deliveries: Sequence[str], digest: Callable[[Path], str] = tree_digest
) -> Sequence[Variant]:
    return (
        streamflow("plain", workflow, settings=settings, digest=digest),
        streamflow("streaming", workflow, {}, deliveries, settings, digest),
    )


def _example(directory: Path) -> Sequence[Variant]:
    fenced = re.findall(r"^```yaml\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (workflow,) = (text for text in fenced if text.startswith("cwlVersion:"))
    path = directory / "workflow.cwl"
    path.write_text(workflow, encoding="utf-8")
    return streamflow("plain", path), streamflow("streaming", path, {}, ["stream"])


def annotated_templates(directory: Path) -> Mapping[str, StreamFlowRun]:
    """Generate the input of the two templates whose steps stream, and return their runs with streams, by name.

    :param directory: for what that prints
    :raises CommandError: if it cannot be generated here
    """
    calling, settings = prepare_variant_calling(directory)
    return {
        "1000genome": StreamFlowRun(
            GENOMES / "main.cwl", {}, ["stream"] * 5, prepare_genotypes(directory), tree_digest
        ),
        "variant-calling": StreamFlowRun(calling, {}, VARIANT_CALLING_DELIVERIES, settings, variants_digest),
    }


def _thousand_genomes(directory: Path) -> Sequence[Variant]:
    return _variants(GENOMES / "main.cwl", prepare_genotypes(directory), ["stream"] * 5)


def _thousand_genomes_directories(directory: Path) -> Sequence[Variant]:
    return _variants(GENOMES / "directories.cwl", prepare_genotypes(directory), [*["stream"] * 2, *["gate"] * 3])


def prepare_genotypes(directory: Path, name: str = "demo", *options: str) -> Path:
    """Generate the input of the 1000 Genomes template, if it is not there; return its job file.

    :param directory: for what that prints
    :param options: those of the generator
    """
    run([[sys.executable, str(GENOMES / "generate.py"), name, *options]], directory)
    return GENOMES / "generated" / name / "job.yml"


def _variant_calling(directory: Path) -> Sequence[Variant]:
    workflow, settings = prepare_variant_calling(directory)
    return _variants(workflow, settings, VARIANT_CALLING_DELIVERIES, variants_digest)


def prepare_variant_calling(directory: Path) -> tuple[Path, Path]:
    """Generate the input of the variant-calling template, if it is not there; return its workflow and its job file.

    :param directory: for what that prints
    :raises CommandError: if it cannot be generated here
    """
    template = WORKFLOWS / "variant-calling"
    run([[sys.executable, str(template / "prepare.py")]], directory)
    return template / "variant-calling.cwl", template / "job-demo.yml"


def variants_digest(directory: Path) -> str:
    """Return a digest of records and headers, without header lines that quote paths: the template's own `compare.py`
    compares the same.
    """
    compare = import_script(WORKFLOWS / "variant-calling" / "compare.py")
    digest = hashlib.sha256()
    for path in sorted(path for path in directory.iterdir() if path.name.endswith(compare.SUFFIXES)):
        digest.update(path.name.encode() + b"\0")
        for line in compare.lines(path):
            digest.update(line)
    return digest.hexdigest()


def _comparison(at_most: float) -> Comparison:
    return Comparison(name="streaming / plain", variant="streaming", baseline="plain", at_most=at_most)


EXAMPLE = Workload("README", "the example of the README, two steps of 4 and 6 seconds", _example, (_comparison(0.8),))
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
