"""The variant-calling template in containers of the images that its tools name: results are plain StreamFlow's."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from lab.container_sites import Containers
from lab.machines.deployments import docker_environment
from lab.machines.images import import_variant_calling
from lab.once import once
from lab.templates import Template, load
from tests.e2e.test_streaming import check_nothing_fell_back
from tests.e2e.test_variant_calling_on_clusters import FIRST, LAST, absent, make_them_meet

JOB = "job-tiny.yml"
FILES = {"plain": "streamflow-containers.yml", "ours": "streamflow-io-containers.yml"}
#: In each container: the directory that all of a run share.
SHARED = Path("/tmp/streamflow")
# A step, and below what the directory of its job is.
EXECUTED = re.compile(r"EXECUTING step (\S+) .* into directory (\S+)/[^/]+:$", re.MULTILINE)


@pytest.fixture
def docker(docker: Containers, common: Path) -> Containers:
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    once(common / "images of variant calling", lambda: import_variant_calling(docker_environment(docker.laboratory)))
    return docker


@pytest.fixture
def templates(tmp_path_factory: pytest.TempPathFactory) -> list[Template]:
    """A copy of the template for each of the files; all have the same input."""
    copy = Template.copy("variant-calling", tmp_path_factory.mktemp("template"))
    prepared = copy.script("prepare.py", "--no-install", "--reads=50")
    if prepared.returncode == 2:
        pytest.skip(prepared.stderr)
    assert prepared.returncode == 0, prepared.stderr
    other = tmp_path_factory.mktemp("other") / copy.directory.name
    shutil.copytree(copy.directory, other)
    return [copy, Template(other)]


@pytest.mark.long
def test_the_variant_calling_template(docker: Containers, templates: list[Template]) -> None:
    steps = {f"/{step}" for step in load(templates[0].directory / "variant-calling.cwl")["steps"]}
    make_them_meet(templates[1], SHARED / "last")
    with ThreadPoolExecutor() as executor:
        logs = list(executor.map(partial(run, docker), templates, FILES))
    for log in logs:
        assert dict(EXECUTED.findall(log)) == dict.fromkeys(steps, str(SHARED))
    compared = templates[0].script("compare.py", *(docker.directory / name / "results" for name in FILES))
    assert compared.stdout + compared.stderr == "identical: marked.bam, variants.vcf\n"
    check_nothing_fell_back(logs[1])
    usage = {record["step"]: record["usage"] for record in docker.telemetry() if "usage" in record}
    assert usage[LAST]["started"] < usage[FIRST]["ended"]
    assert docker.leftovers() == []


def run(docker: Containers, template: Template, name: str) -> str:
    """Run one of the files, below a directory of its name; return what is logged."""
    template.choose(file := FILES[name], JOB)
    place = docker.directory / name
    (place / "tmp").mkdir(parents=True)
    environment = {"TMPDIR": str(place / "tmp"), "XDG_DATA_HOME": str(docker.data), **docker.environment}
    finished = template.run("streamflow", "run", "--outdir", place / "results", file, environment=environment)
    assert finished.returncode == 0, finished.stderr
    return finished.stderr + finished.stdout
