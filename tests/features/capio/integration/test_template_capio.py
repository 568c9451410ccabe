"""The templates with `runtime: capio`: what CAPIO serves of them, and, where it is installed, the results."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lab import forked
from lab.coordination import genomes_file, variants_file
from lab.installed_capio import left_in_shared_memory, use_installed_capio
from lab.templates import BIN, WORKFLOWS, Template, contents
from streamflow_io.commands.plan import plan_file

TOOLS = ("bwa", "samtools", "bcftools")
SERVED = {
    "/chromosome/sifting/sifted -> /chromosome/mutation_overlap/sifted",
    "/chromosome/sifting/sifted -> /chromosome/frequency/sifted",
    "/chromosome/individuals/carriers -> /chromosome/individuals_merge/parts",
    "/chromosome/individuals_merge/merged -> /chromosome/mutation_overlap/merged",
    "/chromosome/individuals_merge/merged -> /chromosome/frequency/merged",
}


@pytest.fixture(autouse=True)
def python_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3` is a program, and no script of a shell that looks for one."""
    monkeypatch.setenv("PATH", str(BIN), prepend=":")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """CAPIO itself, as it is installed."""
    use_installed_capio(monkeypatch)


def test_capio_serves_each_edge_of_1000_genomes_that_streams(tmp_path: Path) -> None:
    """The names of all outputs are expressions."""
    (mapping,) = plan_file(genomes_file(tmp_path, runtime="capio")).forecasts["capio"].values()
    assert {edge.name for edge in mapping.served} == SERVED
    assert not mapping.refused


def test_capio_serves_no_edge_of_variant_calling(tmp_path: Path) -> None:
    """The steps write standard outputs, and most run a program that hangs under CAPIO."""
    (mapping,) = plan_file(variants_file(tmp_path, runtime="capio")).forecasts["capio"].values()
    assert not mapping.served
    assert len(mapping.refused) == 8
    for edge, reason in mapping.refused.items():
        assert "hangs under CAPIO" in reason or "is the standard output of its job" in reason, edge.name


def with_capio(template: Path, file: str, job: str) -> tuple[str, str]:
    """Give both StreamFlow files of a template a job file, and the second one CAPIO; their names."""
    names = []
    for source, config in (("streamflow.yml", None), (file, {"runtime": "capio"})):
        document: Any = YAML(typ="safe", pure=True).load(template / source)
        (workflow,) = document["workflows"].values()
        workflow["config"]["settings"] = job
        document.pop("database", None)
        if config is not None:
            document["scheduling"]["scheduler"]["config"].update(config)
        names.append(f"capio-{source}")
        with (template / names[-1]).open("w") as stream:
            YAML().dump(document, stream)
    return names[0], names[1]


def run(template: Path, file: str, results: Path) -> str:
    """Run it; what it says."""
    environment = {"XDG_DATA_HOME": str(results.parent / "data")}
    ran = forked.run("streamflow", "run", "--outdir", results, file, cwd=template, environment=environment, seconds=200)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.long
@pytest.mark.usefixtures("real")
@pytest.mark.timeout(900)
def test_1000_genomes_under_the_real_capio(tmp_path: Path) -> None:
    template = Template.copy("1000genome", tmp_path).directory
    small = ("small", "--chromosomes", "22", "--instances", "2", "--draws", "20")
    subprocess.run([sys.executable, "generate.py", *small], cwd=template, check=True, timeout=60)
    plain, ours = with_capio(template, "streamflow-io.yml", "generated/small/job.yml")
    run(template, plain, tmp_path / "plain")
    for attempt in range(3):
        log = run(template, ours, tmp_path / f"capio-{attempt}")
        assert contents(tmp_path / f"capio-{attempt}") == contents(tmp_path / "plain")
        assert left_in_shared_memory() == []
        assert "CAPIO serves" in log
        if "CAPIO is not used any more" not in log:  # CAPIO 1.0.0 hangs or crashes in some runs.
            return
    pytest.fail("CAPIO was given up three times")


@pytest.mark.long
@pytest.mark.usefixtures("real")
@pytest.mark.timeout(900)
@pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"not installed: {', '.join(TOOLS)}")
def test_variant_calling_under_the_real_capio(tmp_path: Path) -> None:
    """All of it is served without."""
    template = Template.copy("variant-calling", tmp_path).directory
    shutil.copytree(WORKFLOWS / "tools", tmp_path / "tools")
    prepared = subprocess.run(
        [sys.executable, "prepare.py", "--no-install", "--reads", "500"], cwd=template, check=False, timeout=60
    )
    if prepared.returncode != 0:
        pytest.skip("its input cannot be prepared here")
    plain, ours = with_capio(template, "streamflow-io.yml", "job-demo.yml")
    run(template, plain, tmp_path / "plain")
    log = run(template, ours, tmp_path / "capio")
    # The tools write the paths of their inputs into the headers.
    compared = [sys.executable, "compare.py", tmp_path / "capio", tmp_path / "plain"]
    said = subprocess.run(compared, cwd=template, check=False, capture_output=True, text=True, timeout=60)
    assert said.stdout == "identical: marked.bam, variants.vcf\n", said.stderr
    assert log.count("[SFIO-C002]") == 8
