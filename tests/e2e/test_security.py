"""Another user of a host that streams between two hosts: what this user can see of the run, and reach."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, streamable, tool, workflow
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory
from lab.runs import Run
from lab.sites import Site, apart, hosts_site
from tests.e2e.look import SOCKETS, command_lines, listening, modes, run_directories

SSH = 22
TEXT = b"first\nlast\n"
LOOK = Path(__file__).with_name("look.py")
# A stranger that connects to a port; prints the answer.
STRANGER = """
import socket, sys
for message in (b"GET / HTTP/1.0\\r\\n\\r\\n", bytes(2**20), b"\\xff" * 64, b""):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2) as peer:
        try:
            peer.sendall(message)
            peer.shutdown(socket.SHUT_WR)
            while data := peer.recv(65536):
                sys.stdout.buffer.write(data)
        except OSError:
            pass
"""


def pair() -> Document:
    """`a` writes a line, and another one when it is told to; `b` reads them, and notes that."""
    producer = tool(
        'echo first; i=0; until [ -e "$TRACE.go" ] || [ $i = 600 ]; do i=$((i+1)); sleep 0.1; done; '
        "echo last; note end",
        {},
        {"out": streamable("stdout")},
        stdout="written",
    )
    consumer = tool(
        'while read line; do note "read $line"; echo "$line"; done < $file',
        {"file": streamable()},
        {"out": "stdout"},
        stdout="copy.txt",
    )
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": consumer, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"copy": "b/out"})


@dataclass(frozen=True)
class Seen:
    """The facts that are seen at one time.

    :ivar hosts: by address, what `look.py` prints there
    :ivar commands: command lines of this machine, to which the laboratory's belong
    :ivar listening: at the driver, whose network has no host: addresses and ports
    :ivar told: files of the driver and of the laboratory that have a key in them
    """

    hosts: dict[str, Any]
    commands: list[str]
    listening: list[tuple[str, int]]
    told: list[Path]

    def here(self, what: str) -> Iterator[tuple[str, Any]]:
        for address, host in self.hosts.items():
            yield address, host[what]

    @property
    def ports(self) -> list[tuple[str, int]]:
        """Addresses and ports of the hosts with a listener, but for sshd."""
        return [(address, port) for _, sockets in self.here("listening") for address, port in sockets if port != SSH]


@dataclass(frozen=True)
class Evidence:
    """A run, and what was seen while it streamed, and afterwards.

    :ivar answers: what strangers were told at the ports, by address and port
    """

    run: Run
    during: Seen
    after: Seen
    answers: dict[tuple[str, int], str]

    @property
    def keys(self) -> set[str]:
        return {key for _, keys in self.during.here("keys") for key in keys}


def open_to_others(found: dict[str, str]) -> dict[str, str]:
    """The modes of files that users other than their owner may read, write or enter; links have no rights."""
    return {path: mode for path, mode in found.items() if not mode.startswith("l") and not mode.endswith("------")}


@pytest.fixture(scope="module")
def evidence(hosts_laboratory: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    site = apart(hosts_site(hosts_laboratory, tmp_path_factory.mktemp("security")))
    path = site.write(pair(), {}, io=True)
    trace = (path.parent / "trace").readlink()
    process = site.start(path)
    try:
        wait_until_it_streams(trace, path.parent / "stderr")
        during = see(site, ())
        keys = {key for _, keys in during.here("keys") for key in keys}
        during = see(site, keys)
        answers = {port: ask(hosts_laboratory, *port) for port in during.ports}
    finally:
        Path(f"{trace}.go").touch()
        run = site.finish(process, path)
    return Evidence(run, during, see(site, keys), answers)


def wait_until_it_streams(trace: Path, log: Path) -> None:
    """`b` has read the first line, and `a` still runs."""
    end = time.monotonic() + 25
    while not (trace.exists() and "read first" in trace.read_text()):
        assert time.monotonic() < end, f"nothing streams:\n{log.read_text()}"
        time.sleep(0.1)
    assert " end" not in trace.read_text()


def see(site: Site, keys: Iterable[str]) -> Seen:
    laboratory = site.laboratory
    look = laboratory.directory / "shared" / LOOK.name
    shutil.copy(LOOK, look)

    def on(*command: object) -> Any:
        return json.loads(laboratory.run(*command))

    hosts = {address: on(*laboratory.login(address, f"python3 {look}")) for address in ADDRESSES}
    told = [
        file
        for place in (site.directory, laboratory.directory)
        for file in place.rglob("*")
        if file.is_file() and not file.is_symlink() and any(key.encode() in file.read_bytes() for key in keys)
    ]
    sockets = list(listening(laboratory.run("cat", *SOCKETS)))
    return Seen(hosts, [" ".join(words) for words in command_lines()], sockets, told)


def ask(laboratory: Laboratory, address: str, port: int) -> str:
    return laboratory.run("python3", "-c", STRANGER, address, port)


def test_the_run_is_right_in_spite_of_strangers(evidence: Evidence) -> None:
    assert evidence.run.ok, evidence.run.errors
    assert evidence.run.files == {"copy.txt": TEXT}
    assert evidence.run.time("read first") < evidence.run.time("end")


def test_strangers_are_told_nothing(evidence: Evidence) -> None:
    assert evidence.answers
    for answer in evidence.answers.values():
        assert "first" not in answer
        assert not any(key in answer for key in evidence.keys)


def test_there_is_one_private_key_on_both_hosts(evidence: Evidence) -> None:
    (key,) = evidence.keys
    assert re.fullmatch("[0-9A-Za-z+/=]{64}", key)
    assert [len(keys) for _, keys in evidence.during.here("keys")] == [1, 1]


def test_the_key_is_on_no_command_line(evidence: Evidence) -> None:
    for seen in (evidence.during, evidence.after):
        lines = [*seen.commands, *(line for _, lines in seen.here("commands") for line in lines)]
        assert not [line for line in lines for key in evidence.keys if key in line]
    assert any("sfio-node" in line and " serve " in line for line in evidence.during.commands)


def test_the_key_is_in_no_file_but_its_own(evidence: Evidence) -> None:
    for address, host in evidence.during.hosts.items():
        (run,) = host["runs"]
        assert host["tell_a_key"] == [f"{run}/certificate.key"], address
        assert host["runtime"][f"{run}/certificate.key"] == "-rw-------", address
    assert evidence.during.told == []


def test_neither_log_nor_file_keeps_the_key(evidence: Evidence) -> None:
    assert evidence.keys
    assert evidence.after.told == []
    assert not any(key in evidence.run.log for key in evidence.keys)
    assert not [
        path for _, files in evidence.after.here("files") for path in files if path.endswith("/certificate.key")
    ]


def test_files_of_the_node_runtime_are_the_users_alone(evidence: Evidence) -> None:
    for address, found in evidence.during.here("runtime"):
        names = {Path(path).name for path in found}
        assert {"certificate.key", "alive", "job.json", "events.jsonl"} <= names, address
        assert open_to_others(found) == {}, address


def test_a_fifo_of_an_input_is_the_users_alone(evidence: Evidence) -> None:
    fifos = {
        path: mode
        for _, files in evidence.during.here("files")
        for path, mode in files.items()
        if mode.startswith("p") and path.startswith("/scratch/")
    }
    assert set(fifos.values()) == {"prw-------"}, fifos


def test_nobody_else_can_replace_the_program(evidence: Evidence) -> None:
    for address, found in evidence.during.here("binaries"):
        assert any(Path(path).name.startswith("sfio-node-") for path in found), address
        assert not [path for path, mode in found.items() if "w" in mode[4:]], address


def test_sockets_listen_at_the_address_of_the_host_only(evidence: Evidence) -> None:
    for address, sockets in evidence.during.here("listening"):
        assert [where for where, port in sockets if port != SSH] in ([], [address])
    assert evidence.during.ports
    assert evidence.during.listening == []


def test_nothing_is_left_on_the_hosts(evidence: Evidence) -> None:
    assert evidence.after.ports == []
    for address, host in evidence.after.hosts.items():
        assert host["runs"] == [], address
        assert not [line for line in host["commands"] if "sfio-node" in line], address
        assert not [path for path in host["files"] if "/streamflow-io-" in path], address


def test_a_run_directory_that_all_nodes_share_is_the_users_alone(slurm: Site) -> None:
    path = slurm.write(pair(), {}, io=True)
    trace = (path.parent / "trace").readlink()
    process = slurm.start(path)
    try:
        wait_until_it_streams(trace, path.parent / "stderr")
        runs = [run for run in run_directories(command_lines()) if Path(run).is_relative_to(slurm.directory)]
        # What a job prints is written by the queue manager, with the user's umask; its directory is here, too.
        found = {path: mode for path, mode in modes(*runs).items() if Path(path).name != "printed"}
    finally:
        Path(f"{trace}.go").touch()
        run = slurm.finish(process, path)
    assert run.ok, run.errors
    assert {"job.json", "events.jsonl"} <= {Path(name).name for name in found}
    assert open_to_others(found) == {}
    assert slurm.leftovers() == []
