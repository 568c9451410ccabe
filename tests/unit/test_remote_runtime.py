"""The driver's side of a node runtime elsewhere: its commands there, and the meaning of the answers."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.data import StreamWrapper
from streamflow.core.exception import WorkflowExecutionException

from lab.connectors import CERTIFICATE, Host, event, exited, hosted, say, serving, stand_in
from lab.disks import can_mount
from lab.node import wait_for
from streamflow_io._streamflow import NOT_WRITTEN
from streamflow_io.runtime import conversing
from streamflow_io.runtime.access import Access
from streamflow_io.runtime.binary import Binary, Neighbours, check_workdir, deliver
from streamflow_io.runtime.conversation import Conversation, ShellConversation, ready
from streamflow_io.runtime.conversing import Certificate
from streamflow_io.runtime.deployments import Manner
from streamflow_io.runtime.locations import Place
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import JobSpec
from streamflow_io.runtime.remote import RemoteRuntime

pytestmark = pytest.mark.timeout(30)
FOREIGN = b"\x7fELF" + bytes(14) + b"\xf3\x00" + bytes(100)  # for riscv64


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return Host()


@pytest.fixture
async def access(host: Host) -> AsyncIterator[Access]:
    async with hosted(host) as access:
        yield access


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    return tmp_path / "a work directory"


async def test_it_is_delivered_once(host: Host, access: Access, workdir: Path) -> None:
    binary = stand_in()
    first = await deliver(access, str(workdir), binary)
    assert Path(first.binary).read_bytes() == binary.content
    assert stat.S_IMODE(Path(first.binary).stat().st_mode) == 0o755
    assert os.listdir(first.directory) == [binary.name]
    host.commands.clear()
    assert await deliver(access, str(workdir), binary) == first
    assert [command for command in host.commands if command != "sh"] == host.commands[:1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (FOREIGN, r"host is Linux \w+, and this .* for Linux riscv64"),
        (b"#!/bin/sh\necho no such thing; exit 1", "cannot be run: no such thing"),
        (b"\x7fELF", "cannot be run: "),
    ],
)
async def test_what_does_not_run_there(
    access: Access, workdir: Path, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(NodeRuntimeError, match=message):
        await deliver(access, str(workdir), Binary.load(tmp_path / "file"))


async def test_one_for_the_machine_there_is_taken(host: Host, access: Access, workdir: Path, tmp_path: Path) -> None:
    (tmp_path / "sfio-node").write_bytes(FOREIGN)
    (tmp_path / f"sfio-node-{os.uname().machine}").write_bytes(stand_in().content)
    binary = Binary.load(tmp_path / "sfio-node")
    delivered = await deliver(access, str(workdir), binary)
    assert os.listdir(delivered.directory) == [stand_in().name]
    assert Path(delivered.binary).read_bytes() == stand_in().content
    assert await deliver(access, str(workdir), binary) == delivered


async def test_one_for_yet_another_machine_is_refused(access: Access, workdir: Path, tmp_path: Path) -> None:
    for name in ("sfio-node", f"sfio-node-{os.uname().machine}"):
        (tmp_path / name).write_bytes(FOREIGN)
    with pytest.raises(NodeRuntimeError, match=rf"sfio-node-{os.uname().machine} is for Linux riscv64"):
        await deliver(access, str(workdir), Binary.load(tmp_path / "sfio-node"))


def test_a_machine_cannot_name_any_file(tmp_path: Path) -> None:
    (tmp_path / "sfio-node-x").mkdir()
    (tmp_path / "secret").touch()
    assert Binary(b"", "riscv64", tmp_path / "sfio-node").built_for("x/../secret") is None


async def test_a_work_directory_that_cannot_be_used(access: Access, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NodeRuntimeError, match=f"{tmp_path}/file cannot be used: .*mkdir"):
        await deliver(access, str(tmp_path / "file"), stand_in())


STRANGER = 12345


def plant(directory: Path, marker: Path) -> None:
    """Puts a program that is not ours where ours is looked for."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    program = directory / stand_in().name
    program.write_text(f"#!/bin/sh\ntouch {marker}; echo sfio-node 0.0.0\n")
    program.chmod(0o755)


def give(path: Path) -> None:
    for each in (*path.rglob("*"), path):
        os.lchown(each, STRANGER, STRANGER)


async def test_the_first_of_two_that_bring_the_program_at_once_stays(
    access: Access, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, found = access.write, []

    async def write_after_another(path: PurePosixPath, content: bytes, *, executable: bool = False) -> None:
        monkeypatch.setattr(access, "write", write)
        found.append(Path((await deliver(access, str(workdir), stand_in())).binary).stat().st_ino)
        await write(path, content, executable=executable)

    monkeypatch.setattr(access, "write", write_after_another)
    delivered = await deliver(access, str(workdir), stand_in())
    assert [Path(delivered.binary).stat().st_ino] == found
    assert os.listdir(delivered.directory) == [stand_in().name]


async def test_a_program_with_another_content_is_replaced_and_not_run(
    access: Access, workdir: Path, tmp_path: Path
) -> None:
    plant(workdir / ".streamflow-io", tmp_path / "ran")
    delivered = await deliver(access, str(workdir), stand_in())
    assert Path(delivered.binary).read_bytes() == stand_in().content
    assert not (tmp_path / "ran").exists()


_OF_GROUPS = pytest.mark.skipif(os.geteuid() != 0 and not os.getgroups(), reason="needs another group")


@pytest.mark.parametrize("mode", [0o777, pytest.param(0o775, marks=_OF_GROUPS)])
async def test_where_others_can_put_programs_none_is_run(
    access: Access, workdir: Path, tmp_path: Path, mode: int
) -> None:
    plant(workdir / ".streamflow-io", tmp_path / "ran")
    delivered = await deliver(access, str(workdir), stand_in())
    for place in (workdir, delivered.directory):
        Path(place).chmod(mode)
        if mode == 0o775:
            os.chown(place, -1, os.getgroups()[0] if os.geteuid() else STRANGER)
        with pytest.raises(NodeRuntimeError, match=f"others may write to {place}, which is not sticky"):
            await deliver(access, str(workdir), stand_in())
        Path(place).chmod(0o1777 if place == workdir else 0o755)
        assert await deliver(access, str(workdir), stand_in()) == delivered
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
async def test_a_program_of_another_user_is_not_run(access: Access, workdir: Path, tmp_path: Path) -> None:
    workdir.mkdir()
    workdir.chmod(0o1777)
    theirs, ran = workdir / ".streamflow-io", tmp_path / "ran"

    async def is_refused(message: str) -> None:
        with pytest.raises(NodeRuntimeError, match=message):
            await deliver(access, str(workdir), stand_in())
        assert not ran.exists()

    # The first user in a directory for all.
    plant(theirs, ran)
    give(theirs)
    await is_refused(f"{theirs} belongs to user {STRANGER}: another user could put a program there")
    # A link of that user, also to a directory of ours.
    elsewhere = tmp_path / "elsewhere"
    theirs.rename(elsewhere)
    theirs.symlink_to(elsewhere)
    await is_refused(f"{elsewhere} belongs to user")
    theirs.unlink()
    # The owner of a directory above.
    (workdir / "above" / "work").mkdir(parents=True)
    os.chown(workdir / "above", STRANGER, -1)
    workdir = workdir / "above" / "work"
    plant(workdir / ".streamflow-io", ran)
    await is_refused(f"{workdir.parent} belongs to user")
    # A file of that user in our directory, from when it was open.
    workdir = tmp_path / "ours"
    plant(workdir / ".streamflow-io", ran)
    give(workdir / ".streamflow-io" / stand_in().name)
    delivered = await deliver(access, str(workdir), stand_in())
    assert Path(delivered.binary).stat().st_uid == 0
    assert not ran.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
async def test_each_work_directory_is_looked_at(access: Access, workdir: Path, tmp_path: Path) -> None:
    """Jobs of one location may have several; all that is above them counts, links too."""
    async with serving(access, workdir) as runtime:
        await runtime.check_workdir(str(workdir))
        await runtime.check_workdir(str(tmp_path / "made" / "now"))
        assert (tmp_path / "made" / "now").is_dir()
        (theirs := tmp_path / "theirs").mkdir()
        os.chown(theirs, STRANGER, -1)
        (link := tmp_path / "link").symlink_to(workdir)
        os.lchown(link, STRANGER, -1)
        for unsafe, above in [(theirs, theirs), (theirs / "ours", theirs), (link / "ours", link)]:
            with pytest.raises(NodeRuntimeError, match=f"{above} belongs to user {STRANGER}: set another `workdir`"):
                await runtime.check_workdir(str(unsafe))
        os.lchown(link, 0, -1)
        await runtime.check_workdir(str(link / "ours"))
        with pytest.raises(NodeRuntimeError, match=r"/dev/null/x cannot be used: .*mkdir"):
            await runtime.check_workdir("/dev/null/x")
        # A name that looks like a directory of root in a listing.
        (odd := tmp_path / "x\ndrwxr-xr-x 2 0 0 40 Jan 1 00:00 y").mkdir()
        os.chown(odd, STRANGER, -1)
        with pytest.raises(NodeRuntimeError, match=f"{tmp_path}/x: set another `workdir`"):
            await runtime.check_workdir(str(odd / "work"))


async def test_a_mount_of_containers_may_be_open(access: Access, workdir: Path) -> None:
    (inner := workdir / "inner").mkdir(parents=True)
    workdir.chmod(0o777)
    with pytest.raises(NodeRuntimeError, match=f"others may write to {workdir}, which is not sticky: set another"):
        await check_workdir(access, str(inner), Neighbours(0))
    await check_workdir(access, str(inner), Neighbours(0, [str(workdir)]))
    (link := workdir.parent / "link").symlink_to(workdir)
    await check_workdir(access, str(link / "inner"), Neighbours(0, ["/nowhere", str(workdir)]))


async def test_run_directories_are_where_others_cannot_replace_them(
    access: Access, workdir: Path, tmp_path: Path
) -> None:
    (tmp_path / "tmp").chmod(0o777)
    assert str((await deliver(access, str(workdir), stand_in())).temporary) == "/tmp"
    (tmp_path / "tmp").chmod(0o1777)
    assert str((await deliver(access, str(workdir), stand_in())).temporary) == str(tmp_path / "tmp")


@pytest.fixture
def noexec(workdir: Path) -> Iterator[Path]:
    """A work directory from which no program can be run."""
    workdir.mkdir()
    if not can_mount(workdir):
        pytest.skip("no file system can be mounted")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,mode=755", "none", workdir], check=True)
    yield workdir
    subprocess.run(["umount", workdir], check=True)


async def test_where_no_program_can_be_run_it_is_beside_temporary_files(
    access: Access, noexec: Path, tmp_path: Path
) -> None:
    """Several users may have such a directory. A queue manager runs jobs on nodes that do not see the directory."""
    with pytest.raises(NodeRuntimeError, match=r"run: .*ermission denied \(is its file system mounted noexec\?\)"):
        await deliver(access, str(noexec), stand_in())
    delivered = await deliver(access, str(noexec), stand_in(), is_apart=True)
    assert delivered.directory == PurePosixPath(noexec / ".streamflow-io")
    own = PurePosixPath(tmp_path / "tmp" / f".streamflow-io-{os.getuid()}")
    assert delivered.binary == own / stand_in().name
    assert await deliver(access, str(noexec), stand_in(), is_apart=True) == delivered


async def test_limits_are_replaced_as_a_whole(access: Access, workdir: Path) -> None:
    async with serving(access, workdir) as runtime:
        job = await runtime.create_job("j")
        job.limit(7)
        await job.wrap(JobSpec(name="j"))
        job.limit(8.2)
        file = Path(job.directory, "limit")
        expected = {"rate": 8}
        await asyncio.to_thread(
            wait_for, lambda: file.exists() and json.loads(file.read_text()) == expected, "the limits"
        )
        say(runtime, exited(job.identifier))
        await job.exit
        job.limit(9)
        await asyncio.sleep(0.05)
        assert json.loads(file.read_text()) == expected


async def test_a_job_in_a_queue_is_cancelled_without_waiting_for_it(access: Access, workdir: Path) -> None:
    async with serving(access, workdir, manner=Manner(shared=True)) as runtime:
        job = await runtime.create_job("j")
        await job.wrap(JobSpec(name="j"))
        await job.cancel()
        await asyncio.to_thread(wait_for, Path(job.directory, "cancel").exists, "the file")
        assert not job.exit.done()


async def test_a_job_that_waits_for_an_answer_is_lost_with_its_runtime(access: Access, workdir: Path) -> None:
    async with serving(access, workdir) as runtime:
        Path(runtime.directory, "mute").touch()
        job = await runtime.create_job("j")
        wrapping = asyncio.create_task(job.wrap(JobSpec(name="j")))
        await asyncio.sleep(0.05)
        assert not wrapping.done()
        Path(runtime.directory, "die").touch()
        with pytest.raises(NodeRuntimeError, match="has ended"):
            await asyncio.wait_for(wrapping, 10)


async def test_where_it_runs_by_its_manner(host: Host, access: Access, workdir: Path, tmp_path: Path) -> None:
    for manner, parent, option, wrapper in (
        (Manner(), tmp_path / "tmp", "", "exec"),
        (Manner(shared=True), workdir / ".streamflow-io", " --shared", "run"),
        (Manner(listen=True), tmp_path / "tmp", " --listen", "exec"),
    ):
        async with serving(access, workdir, manner=manner) as runtime:
            directory = Path(runtime.directory)
            assert directory.parent == parent.resolve()
            assert (directory / "words").read_text() == f"serve --directory {directory} --patience 60{option}\n"
            job = await runtime.create_job("j")
            assert (await job.wrap(JobSpec(name="j")))[1] == wrapper


async def test_containers_of_the_host_find_what_it_makes_for_them(access: Access, workdir: Path) -> None:
    """The processes run as other users: they may pass, but not list."""
    async with serving(access, workdir, place=Place("host")) as runtime:
        directory = Path(runtime.directory)
        assert directory.parent == workdir.resolve() / f".streamflow-io-{os.getuid()}"
        assert (directory / "words").read_text() == f"serve --directory {directory} --patience 60 --readable\n"
        assert len(directory.name.split("-")[-1]) == 32
        assert stat.S_IMODE(os.stat(directory.parent).st_mode) == 0o711


@pytest.mark.parametrize("tls", [True, False])
async def test_what_is_needed_for_a_link(host: Host, access: Access, workdir: Path, tls: bool) -> None:
    manner = Manner(listen=True)
    async with (
        serving(access, workdir, stand_in("10.0.0.1:7"), manner, tls) as one,
        serving(access, workdir, stand_in("10.0.0.2:7"), manner, tls) as other,
    ):
        for name, content in (("certificate.pem", CERTIFICATE.certificate), ("certificate.key", CERTIFICATE.key)):
            file = Path(other.directory, name)
            assert file.read_bytes() == content
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        # A certificate without its private key is of no use. Each input is a program of its own.
        there = [command for command in host.commands if f"{other.directory}/certificate" in command]
        (_, placed) = there
        assert sum("cat >" in command for command in there) == 1
        assert placed.index("certificate.key") < placed.rindex("mv -f")
        secret = CERTIFICATE.key.splitlines()[1].decode()
        assert not any(secret in command for command in host.commands)
        option = " --tls" if tls else ""
        assert Path(other.directory, "words").read_text().endswith(f" --patience 60 --listen{option}\n")
        assert await other.obstacle(one) is None
        reached = Path(f"{other.binary}.reached").read_text()
        assert reached == f"reach 10.0.0.1:7 --certificate {other.certificate_path}\n"
        link = (await one.create_job("j")).link_to(other)
        assert link is not None
        assert link.tls is tls


async def test_no_job_waits_for_what_links_need(access: Access, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link waits for the certificate, and the end of the runtime does not."""
    write, goes_on = Access.write, asyncio.Event()

    async def write_later(self: Access, path: PurePosixPath, *words: Any, **options: Any) -> None:
        await goes_on.wait()
        await write(self, path, *words, **options)

    manner = Manner(listen=True, starts_commands=True)
    async with serving(access, workdir):
        pass  # The binary is there from now on.
    monkeypatch.setattr(Access, "write", write_later)
    async with serving(access, workdir, manner=manner) as one, serving(access, workdir, manner=manner) as other:
        one.address, other.address = "10.0.0.1:7", "10.0.0.2:7"
        assert [Path(each.directory, "certificate.pem").exists() for each in (one, other)] == [False, False]
        reaching = asyncio.create_task(one.obstacle(other))
        goes_on.set()
        await reaching
        assert [Path(each.directory, "certificate.pem").exists() for each in (one, other)] == [True, True]
        goes_on.clear()
        async with serving(access, workdir, manner=manner):
            pass


@pytest.mark.parametrize("starts_commands", [True, False])
async def test_what_serve_says_is_confirmed_where_a_launcher_waits_for_that(
    access: Access, workdir: Path, starts_commands: bool
) -> None:
    """`serve` says nothing more until the driver has. Many lines at once get few answers."""
    heard: list[str] = []
    async with serving(access, workdir, manner=Manner(starts_commands=starts_commands)) as runtime:
        send = runtime._conversation.send

        async def listen(line: str) -> None:
            heard.append(line)
            await send(line)

        runtime._conversation.send = listen  # type: ignore[method-assign]
        job = await runtime.create_job("j")
        await runtime.write_spec(job, "{}")
        assert len(heard) == 1, "the next request confirms the answer"
        say(runtime, *[event(job.identifier, "started", pid=1, command_pid=2)] * 500, exited(job.identifier))
        await job.exit
        await asyncio.sleep(0)
        confirmed = [json.loads(line) for line in heard[1:]]
        assert all(line == {"alive": 1} for line in confirmed)
        assert (1 <= len(confirmed) < 100) if starts_commands else not confirmed


def test_a_certificate_signs_itself_and_is_of_one_run() -> None:
    one, other = Certificate.make(), Certificate.make()
    assert one.certificate != other.certificate
    certificate = x509.load_pem_x509_certificate(one.certificate)
    certificate.verify_directly_issued_by(certificate)
    key = serialization.load_pem_private_key(one.key, None)
    assert key.public_key() == certificate.public_key()
    assert key.public_key() != x509.load_pem_x509_certificate(other.certificate).public_key()


async def test_what_a_login_shell_says_is_ignored(
    access: Access, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, converse = access.run, access.converse

    async def welcome() -> Conversation:
        conversation = await converse()
        await conversation.send("echo '{Welcome}'")
        return conversation

    monkeypatch.setattr(access, "run", lambda script, *rest: run(f"echo Welcome; {script}", *rest))
    monkeypatch.setattr(access, "converse", welcome)
    async with serving(access, workdir) as runtime:
        job = await runtime.create_job("j")
        say(runtime, "a warning of its own", exited(job.identifier))
        assert (await asyncio.wait_for(job.exit, 10)).success


async def test_a_serve_that_does_not_start(access: Access, workdir: Path, tmp_path: Path) -> None:
    delivered = await deliver(access, str(workdir), stand_in())
    Path(f"{delivered.binary}.broken").touch()
    with pytest.raises(NodeRuntimeError, match="host/host: sfio-node serve does not start: it is broken"):
        await RemoteRuntime.start(access, str(workdir), stand_in())
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_serve_that_is_killed_while_it_starts(access: Access, workdir: Path, tmp_path: Path) -> None:
    """The directory is there, and is removed."""
    delivered = await deliver(access, str(workdir), stand_in())
    Path(f"{delivered.binary}.killed").touch()
    with pytest.raises(NodeRuntimeError, match="host/host: sfio-node serve does not start"):
        await RemoteRuntime.start(access, str(workdir), stand_in())
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_node_that_is_lost_while_it_starts() -> None:
    """The job then fails at its own command. A failure manager tries it again elsewhere."""

    class Lost(Conversation):
        async def line(self) -> bytes | None:
            raise WorkflowExecutionException("node n1 is DOWN")

        async def send(self, line: str) -> None:
            raise NotImplementedError

        async def close(self, seconds: float) -> None:
            raise NotImplementedError

    with pytest.raises(NodeRuntimeError, match="at n1 does not start: node n1 is DOWN"):
        await ready(Lost(), "sfio-node serve at n1", 60)


async def test_a_serve_that_ends(access: Access, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "drop", lambda: pytest.fail("its host may be well"))
    async with serving(access, workdir) as runtime:
        job = await runtime.create_job("j")
        await job.wrap(JobSpec(name="j"))
        Path(runtime.directory, "die").touch()
        with pytest.raises(NodeRuntimeError, match="sfio-node serve has ended at host/host"):
            await asyncio.wait_for(asyncio.shield(job.exit), 10)
        for attempt in (job.has_started(), runtime.create_job("next")):
            with pytest.raises(NodeRuntimeError, match="has ended"):
                await attempt
        # Nothing else removes what is left of it.
        assert Path(runtime.directory).exists()


async def test_a_connection_breaks_before_its_end_is_known(
    access: Access, workdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The host counts as lost before the job does that cannot be asked for: the job may be tried again elsewhere."""
    left: list[str] = []
    monkeypatch.setattr(access, "leave", left.append)

    async def send(line: str) -> None:
        Path(runtime.directory, "die").touch()
        raise BrokenPipeError("Connection lost")

    async with serving(access, workdir) as runtime:
        job = await runtime.create_job("j")
        monkeypatch.setattr(runtime._conversation, "send", send)
        with pytest.raises(NodeRuntimeError, match=r"^sfio-node serve has ended at host/host$"):
            await job.wrap(JobSpec(name="j"))
        assert left == ["sfio-node serve has ended at host/host"]
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_serve_that_is_not_heard_of(access: Access, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host counts as lost before its jobs do: the jobs may be tried again at once."""
    monkeypatch.setattr(conversing, "SILENCE_SECONDS", 0.1)
    dropped: list[bool] = []
    async with serving(access, workdir) as runtime:
        job = await runtime.create_job("j")
        monkeypatch.setattr(access, "drop", lambda: dropped.append(job.exit.done()))
        with pytest.raises(NodeRuntimeError, match="has sent nothing for"):
            await asyncio.wait_for(asyncio.shield(job.exit), 10)
        assert dropped == [False]
        runtime.stop_seconds = 0.1


async def test_reaching_another(access: Access, workdir: Path, tmp_path: Path) -> None:
    manner = Manner(listen=True)
    async with (
        serving(access, workdir, stand_in("10.0.0.1:7"), manner) as one,
        serving(access, workdir, stand_in("10.0.0.2:1"), manner) as refusing,
        serving(access, workdir, stand_in(), manner) as silent,
        serving(access, workdir, stand_in()) as unlinked,
    ):
        assert await asyncio.gather(*(refusing.obstacle(one) for _ in range(3))) == [None] * 3
        reached = Path(f"{refusing.binary}.reached").read_text()
        assert reached == f"reach 10.0.0.1:7 --certificate {refusing.certificate_path}\n"
        assert await one.obstacle(refusing) == "host/host cannot reach host/host at 10.0.0.2:1: refused"
        assert "cannot be reached from elsewhere" in str(await one.obstacle(silent))
        assert "have no link" in str(await one.obstacle(unlinked))
        assert "have no link" in str(await unlinked.obstacle(one))
        assert await unlinked.obstacle(unlinked) is None
        job = await one.create_job("j")
        assert job.link_to(one) is None
        link = job.link_to(refusing)
        assert link is not None
        assert (link.address, link.job, link.certificate) == (
            "10.0.0.1:7",
            job.identifier,
            str(refusing.certificate_path),
        )


async def test_a_node_that_is_lost_is_not_asked_for_its_files(access: Access, workdir: Path) -> None:
    """`sfio-node receive` would try to reach the node for seconds, for each file."""
    manner = Manner(listen=True)
    async with (
        serving(access, workdir, stand_in("10.0.0.1:7"), manner) as lost,
        serving(access, workdir, stand_in("10.0.0.2:7"), manner) as receiver,
    ):
        assert await receiver.no_link(lost) is None
        job = await lost.create_job("j")
        Path(lost.directory, "die").touch()
        with pytest.raises(NodeRuntimeError, match="has ended"):
            await asyncio.wait_for(asyncio.shield(job.exit), 10)
        why = await asyncio.wait_for(receiver.fetch(lost, "/file", "cat"), 10)
        assert "has ended at host/host" in str(why)
        assert os.listdir(Path(receiver.directory, "jobs")) == []


async def test_a_file_that_cannot_be_written_is_no_matter_of_the_link(
    access: Access, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver could not write the file there, either."""

    async def fail(job: NodeJob, script: str) -> tuple[str, int]:
        return "tar: file: No space left on device\ntar: Exiting", NOT_WRITTEN

    manner = Manner(listen=True)
    async with (
        serving(access, workdir, stand_in("10.0.0.1:7"), manner) as sender,
        serving(access, workdir, stand_in("10.0.0.2:7"), manner) as receiver,
    ):
        monkeypatch.setattr(receiver, "run_command", fail)
        why = "tar: file: No space left on device; tar: Exiting (is the disk full?)"
        with pytest.raises(WorkflowExecutionException, match=re.escape(f"/file cannot be written at host/host: {why}")):
            await receiver.fetch(sender, "/file", "cat")


async def test_a_command_that_is_given_up_does_not_spoil_the_next(access: Access) -> None:
    with pytest.raises(NodeRuntimeError, match="does not answer"):
        await access.run("echo late; sleep 0.3; echo later", 0.05)
    assert await access.run("echo mine") == ("mine", 0)


class _Chunks(StreamWrapper):  # type: ignore[misc]
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    async def read(self, size: int | None = None) -> bytes:
        return next(self._chunks, b"")

    async def write(self, data: bytes) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass


@given(st.lists(st.binary(min_size=1, max_size=5).map(lambda chunk: chunk.replace(b"x", b"\n"))))
def test_lines_do_not_depend_on_how_they_come(chunks: list[bytes]) -> None:
    async def read() -> list[bytes]:
        stream = _Chunks(iter(chunks))
        output, lines = ShellConversation(None, stream, stream), []
        while (line := await output.line()) is not None:
            lines.append(line)
        return lines

    assert asyncio.run(read()) == b"".join(chunks).split(b"\n")[:-1]
