"""The StreamFlow files of `docs/operating-on-a-cluster.md`, which users copy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab.cwl import NAMESPACES, streamable, tool, workflow
from lab.templates import load
from streamflow_io.commands.plan import plan_file
from streamflow_io.hints.yaml_files import read_scheduler_config

PAGE = Path(__file__).parents[2] / "docs" / "operating-on-a-cluster.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
LOGIN = "  login:\n"


def streamflow_files() -> dict[str, str]:
    """By the deployment that they bind to."""
    allocation, submit, slurm, login, hosts = BLOCKS
    submitted = allocation.replace("    config: {}\n", submit, 1)
    assert YAML(typ="safe", pure=True).load(submitted)["deployments"]["nodes"]["config"]["submit"]["nodes"] == 4
    wrapped = slurm.replace("# wraps: login ", "wraps: login # ").replace("workflows:\n", f"{login}workflows:\n", 1)
    assert login.startswith(LOGIN)
    nodes = {"allocation": allocation, "allocation to ask for": submitted}
    return {**nodes, "slurm": slurm, "slurm behind a login node": wrapped, "hosts": hosts}


@pytest.mark.parametrize("name", streamflow_files())
def test_a_file_is_valid_and_streams(name: str, tmp_path: Path) -> None:
    writer = tool("echo text", {}, {"out": streamable("stdout")}, stdout="out.txt")
    reader = tool("cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="copy.txt")
    steps = {"a": {"run": writer, "in": {}}, "b": {"run": reader, "in": {"file": "a/out"}}}
    document = {"cwlVersion": "v1.2", "$namespaces": NAMESPACES, **workflow({}, steps, {"copy": "b/out"})}
    (tmp_path / "main.cwl").write_text(json.dumps(document))
    (tmp_path / "job.yml").write_text("{trace: /tmp/trace}")
    (file := tmp_path / "streamflow.yml").write_text(streamflow_files()[name])
    assert read_scheduler_config(file) is not None
    (plan,) = plan_file(file).plans.values()
    assert [edge.delivery.value for edge in plan.graph.edges] == ["stream"]
    deployments = load(file)["deployments"]
    assert [entry.get("wraps") for entry in deployments.values()] == (["login", None] if "behind" in name else [None])
