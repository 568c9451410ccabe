"""Node runtimes on SSH hosts and on a Slurm: jobs run, one is cancelled, nothing is left however the driver ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from lab import forked
from lab.cwl import Document
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import LINK_MEGABITS
from lab.sites import Site
from tests.e2e.test_laboratory import login as log_in


def start(site: Site, program: str, *words: str, config: Document | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program in the network of the laboratory."""
    file = site.directory / "streamflow.yml"
    scheduling = {} if config is None else {"scheduling": {"scheduler": {"type": "sfio.io-aware", "config": config}}}
    file.write_text(json.dumps({"version": "v1.0", "workflows": {}, **scheduling, **site.settings}))
    environment = {**site.environment, "TMPDIR": str(site.directory), "XDG_DATA_HOME": str(site.directory)}
    return forked.run(
        program, *words, cwd=site.directory, environment=environment, namespaces=site.namespaces, seconds=90
    )


def drive(site: Site, *options: str) -> tuple[int, list[Document]]:
    ended = start(site, "runtime driver", "streamflow.yml", site.name, *options)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def left(site: Site, used: list[Document]) -> list[str]:
    """Processes and files of node runtimes, but for the binary."""
    names = [name for location in used for name in (location["directory"], location["binary"])]
    if site.name != "hosts":
        found = [str(path) for path in Path(used[0]["binary"]).parent.iterdir() if str(path) not in names[1::2]]
        return [*found, *site.leftovers()]
    look = "ls -d /tmp/streamflow-io-* /scratch/streamflow-io-* 2>/dev/null; pgrep -l sfio-node; true"
    return [line for address in ADDRESSES for line in log_in(site.laboratory, address, look).splitlines()]


@pytest.mark.parametrize("name", ["slurm", "hosts"])
def test_a_runtime_at_each_location(request: pytest.FixtureRequest, name: str) -> None:
    place: Site = request.getfixturevalue(name)
    code, used = drive(place)
    assert code == 0
    assert len(used) == (2 if place.name == "hosts" else 1)
    for location in used:
        assert location["events"] == ["started", "opened", "closed", "committed", "complete", "changed", "exit"]
        assert location["result"] == ["said", 3]
        assert location["cancelled"] == "cancelled"
        # 40 MB, at 1 MB/s until it has told how much it has moved.
        assert location["paused"] > 1
        assert location["seconds of the limited"] < 30
        assert location["moved"] > 0
        # Of a job of Slurm that a signal has ended, StreamFlow says that its exit code is 0.
        assert location["result of the cancelled"][1] != 0 or place.name == "hpc"
        assert location["succeeded though scancelled"] is False
    assert left(place, used) == []


@pytest.mark.parametrize("name", ["login", pytest.param("hosts", marks=pytest.mark.long)])
def test_the_driver_is_killed(request: pytest.FixtureRequest, name: str) -> None:
    place: Site = request.getfixturevalue(name)
    code, used = drive(place, "killed")
    assert code == -signal.SIGKILL
    end = time.monotonic() + 60
    while remains := left(place, used):
        assert time.monotonic() < end, remains
        time.sleep(0.2)


def found_by_doctor(site: Site, config: Document | None = None) -> dict[str, Any]:
    words = ("doctor", "--json", "--location", site.name, "streamflow.yml")
    ended = start(site, "streamflow-io", *words, config=config)
    assert ended.stdout, ended.stderr
    return {finding["name"]: finding for finding in json.loads(ended.stdout)["findings"]}


OF_HOSTS = ("rate of links", "work directory", "space of each location", "memory of each location")


@pytest.mark.parametrize("tls", [pytest.param(False, marks=pytest.mark.long), True])
def test_doctor_at_hosts(hosts: Site, tls: bool) -> None:
    found = found_by_doctor(hosts, {"tls": True} if tls else None)
    tried = ("delivery", "commit tokens", "byte streams", "gate", "limits")
    names = [f"{name}, {host}" for host in ADDRESSES for name in tried]
    assert list(found) == ["connection", *names, *(f"link, {host}" for host in ADDRESSES), *OF_HOSTS]
    assert {name: finding for name, finding in found.items() if finding["works"] is not True} == {}
    details = [found[f"link, {host}"]["detail"] for host in ADDRESSES]
    assert [detail.rpartition(":")[0] for detail in details] == list(ADDRESSES)
    assert [", inside TLS" in detail for detail in details] == [tls, tls]
    rates = re.findall(r"([\d.]+) MB/s \S+ -> ", found["rate of links"]["detail"])
    assert len(rates) == len(ADDRESSES)
    assert all(LINK_MEGABITS / 8 * 0.5 < float(rate) < LINK_MEGABITS / 8 * 1.1 for rate in rates), rates
    assert found["work directory"]["detail"].startswith("/scratch: all 2 locations have one each (tmpfs)")
