"""Nothing of a laboratory is left, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lab.machines.deployments import slurm_environment
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory, LaboratoryError, laboratory, start_hosts, start_slurm
from lab.machines.slurm import NODES, has_cgroups
from tests.e2e.conftest import require_laboratories

SUITE = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.e2e.conftest import hosts_laboratory

SLEEP = [sys.executable, "-uc", "import time; print(); time.sleep(60)"]

def test_that_ends_all(hosts_laboratory):
    Path(__file__).with_name("directory").write_text(str(hosts_laboratory.directory))
    command = [*hosts_laboratory.prefix, *SLEEP, hosts_laboratory.directory]
    # Before its first line the process may not be in the laboratory yet.
    subprocess.Popen(command, stdout=subprocess.PIPE).stdout.readline()
    os.kill(os.getpid(), signal.{number})
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _required() -> None:
    require_laboratories()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
def test_pytest_ends(tmp_path: Path, number: signal.Signals) -> None:
    links = network_links()
    (tmp_path / "conftest.py").touch()
    (tmp_path / "test_suite.py").write_text(SUITE.format(number=number.name))
    repository = Path(__file__).parents[2]
    suite = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "PYTHONPATH": f"{repository}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        timeout=60,
        text=True,
        check=False,
    )
    interrupted = number is signal.SIGINT
    assert suite.returncode == (pytest.ExitCode.INTERRUPTED if interrupted else -number), suite.stdout + suite.stderr
    check_gone(Path((tmp_path / "directory").read_text()))
    assert network_links() == links


def test_its_keeper_is_killed() -> None:
    with start_hosts() as running:
        os.kill(parent(running.pid), signal.SIGKILL)
        end = time.monotonic() + 60
        while Path(f"/proc/{running.pid}").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
    check_gone(running.directory)


@pytest.mark.parametrize("start", [start_slurm, start_hosts])
def test_it_does_not_start_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: Callable[[], AbstractContextManager[Laboratory]]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("lab.machines.laboratory.START_SECONDS", 0.1)
    with pytest.raises(LaboratoryError, match="not ready in"), start():
        pytest.fail("so soon?")
    assert list(tmp_path.iterdir()) == []
    check_gone(tmp_path)


def test_its_start_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = "import subprocess, sys; subprocess.Popen(['sleep', '60', sys.argv[1]]); sys.exit('broken')"
    with pytest.raises(LaboratoryError, match="broken"), laboratory("-c", script):
        pytest.fail("it was ready")
    check_gone(tmp_path)


def test_hosts_have_file_systems_of_their_own(hosts_laboratory: Laboratory, tmp_path: Path) -> None:
    one, other = ADDRESSES
    secret = tmp_path / "of the driver"
    secret.touch()
    (hosts_laboratory.directory / "shared" / "of all").touch()
    login(hosts_laboratory, one, "touch /scratch/mine /tmp/mine")
    for file in ("/scratch/mine", "/tmp/mine", secret, hosts_laboratory.directory / "key"):
        assert login(hosts_laboratory, other, f"test -e '{file}' || echo absent") == "absent\n"
    assert login(hosts_laboratory, other, f"ls {hosts_laboratory.directory}/shared").startswith("of all\n")


def test_nodes_of_slurm_share_nothing_but_files(slurm_laboratory: Laboratory) -> None:
    """Each has an address, a name, processes and a memory of its own; a job gets its cores, and no more."""
    looks = "hostname; hostname -I; nproc; echo $(ls -d /proc/[0-9]* | wc -l); ls /dev/shm; touch /dev/shm/mine"
    told = [node(slurm_laboratory, name, looks).split() for name in NODES]
    assert [(name, address) for name, address, *_ in told] == list(NODES.items())
    if has_cgroups():
        assert {cores for *_, cores, _ in told} == {"1"}
    ours = len([each for each in os.listdir("/proc") if each.isdigit()])
    assert all(int(processes) < ours for *_, processes in told)


def node(laboratory: Laboratory, name: str, command: str) -> str:
    return laboratory.run("srun", "--nodelist", name, "-c1", "sh", "-c", command, **slurm_environment(laboratory))


@pytest.mark.long
def test_links_of_hosts_are_shaped(hosts_laboratory: Laboratory) -> None:
    """10 MB take at least 0.3 s over 200 Mbit/s."""
    begin = time.monotonic()
    login(hosts_laboratory, ADDRESSES[0], "head -c 10000000 /dev/zero")
    assert time.monotonic() - begin > 0.3


def login(running: Laboratory, address: str, command: str) -> str:
    return running.run(*running.login(address, command))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def network_links() -> list[str]:
    """The network links of the machine itself; a laboratory has its own."""
    return sorted(os.listdir("/sys/class/net"))


def check_gone(place: Path) -> None:
    end = time.monotonic() + 60
    while left := traces(place):
        assert time.monotonic() < end, left
        time.sleep(0.05)


def traces(place: Path) -> list[str]:
    """The traces of a laboratory: files, mounts, processes that are told of it."""
    left = [str(path) for path in place.glob("*")]
    left += [line for line in Path("/proc/mounts").read_text().splitlines() if str(place) in line]
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path("/proc", entry, "cmdline").read_bytes()
        except OSError:
            continue
        if str(place).encode() in command and int(entry) != os.getpid():
            left.append(command.replace(b"\0", b" ").decode())
    return left
