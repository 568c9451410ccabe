"""The variant-calling template on Slurm and on SSH hosts: results are plain StreamFlow's, and the steps overlap."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab.sites import Site
from lab.templates import Template, load
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back

PAIRS = 5000
JOB = "job-demo.yml"
TOOLS = ("bwa", "samtools", "bcftools", "wgsim")
# Seven steps, each with the one before as its producer.
FIRST, LAST = "/align", "/filter"
# "Plain StreamFlow mixes messages into results": the script of docs/operating-on-a-cluster.md.
SCRIPT = "#!/bin/sh\n{{ streamflow_command.removesuffix(' 2>&1') }}\n"

absent = [tool for tool in TOOLS if shutil.which(tool) is None]


@pytest.mark.long
@pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")
def test_the_variant_calling_template(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    template = Template.copy("variant-calling", tmp_path_factory.mktemp("template"))
    prepared = template.script("prepare.py", "--no-install", f"--reads={PAIRS}")
    if prepared.returncode == 2:
        pytest.skip(prepared.stderr)
    assert prepared.returncode == 0, prepared.stderr
    run_plain(site, template)
    make_them_meet(template, site.shared / f"{site.directory.name}.last")
    _, log = site.run_template(template, "streamflow-io.yml", JOB)

    results = [site.directory / f"{file}.results" for file in ("streamflow.yml", "streamflow-io.yml")]
    compared = template.script("compare.py", *results)
    assert compared.stdout + compared.stderr == "identical: marked.bam, variants.vcf\n"
    check_nothing_fell_back(log)
    usage = {record["step"]: record["usage"] for record in site.records("ended") if record["step"] in (FIRST, LAST)}
    assert usage[LAST]["started"] < usage[FIRST]["ended"]
    check_gone(site)


def run_plain(site: Site, template: Template) -> None:
    """Run it with plain StreamFlow, which on Slurm needs a script for its jobs; with StreamFlow-IO it needs none."""
    if site.is_slurm:
        (site.directory / "job.sh").write_text(SCRIPT)
        site.service = "apart"
        site.deployment["config"]["services"] = {site.service: {"file": str(site.directory / "job.sh")}}
    site.run_template(template, "streamflow.yml", JOB)
    if site.is_slurm:
        site.deployment["config"]["services"] = {site.service: {"time": "00:10:00"}}


def make_them_meet(template: Template, begun: Path) -> None:
    """Let the first end only when the last runs; it waits for that half a minute at most.

    :param begun: a file that the last makes when it begins
    """
    wait = f'"$0" "$@" || exit; i=0; until [ -e {begun} ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done'
    run_by(template, FIRST, ["sh", "-c", wait])
    run_by(template, LAST, ["sh", "-c", f'touch {begun}; exec "$0" "$@"'])


def run_by(template: Template, step: str, words: Sequence[str]) -> None:
    """Put words before the command of a step."""
    tool = template.directory / "tools" / f"{step.strip('/')}.cwl"
    document = load(tool)
    document["baseCommand"] = [*words, *document["baseCommand"]]
    with tool.open("w") as stream:
        YAML().dump(document, stream)
