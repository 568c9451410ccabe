"""The StreamFlow files of the page for clusters run as they are written, but for the names of a site."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lab.machines.deployments import ssh_deployment
from lab.machines.hosts import ADDRESSES
from lab.machines.slurm import LOGIN
from lab.sites import Site
from scripts.pages import blocks
from tests.e2e.test_streaming import READER, chain, check_gone, check_nothing_fell_back, consumer, read_while_written

PAGE = Path(__file__).parents[2] / "docs" / "operating-on-a-cluster.md"


def written(start: str, site: Site) -> Any:
    """The block of the page that starts so, with the work directory and the partition of a site."""
    (text,) = [block.text for block in blocks(PAGE.read_text()) if block.text.startswith(start)]
    text = re.sub(r"/scratch(/me)?", str(site.deployment["workdir"]), text)
    return YAML(typ="safe", pure=True).load(text.replace("partition: main", "partition: all"))


@pytest.mark.parametrize("way", ["batch job", "submit", "slurm", "login", "hosts"])
def test_a_file_of_the_page_runs(request: pytest.FixtureRequest, way: str) -> None:
    site: Site = request.getfixturevalue({"batch job": "allocation", "hosts": "hosts"}.get(way, "slurm"))
    name = {"batch job": "nodes", "submit": "nodes", "hosts": "hosts"}.get(way, "hpc")
    file = written(f"version: v1.0\ndeployments:\n  {name}:", site)
    deployments = file["deployments"]
    if way == "submit":
        deployments[name] |= written("    config:\n      submit:", site)
    elif way == "login":
        # Commands of Slurm run on the login node.
        site = replace(site, environment={})
        deployments |= written("  login:", site)
        deployments[name]["wraps"] = "login"
        deployments["login"]["config"] |= ssh_deployment(site.laboratory, LOGIN)["config"]
    elif way == "hosts":
        deployments[name]["config"] |= ssh_deployment(site.laboratory, *ADDRESSES)["config"]
    path = site.write(chain(read_while_written(), consumer(READER)), {}, io=True)
    path.with_name("job.json").rename(path.with_name("job.yml"))
    database = json.loads(path.read_text())["database"]
    path.write_text(json.dumps({**file, "database": database}))
    run = site.finish(site.start(path), path)
    assert run.ok, run.errors
    assert run.files["last.txt"] == b"first\nsecond\n"
    assert run.time("first") < run.time("end")
    check_nothing_fell_back(run.log)
    check_gone(site)
