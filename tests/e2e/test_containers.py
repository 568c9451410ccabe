"""Steps in containers: results are plain StreamFlow's, consumers run while producers write, and nothing is left."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lab.container_sites import BUSYBOX, DEBIAN, Containers, contained, make_user_image
from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.gates import MEET, assert_early, pair, producer, reader
from lab.machines.containers import LOGIN_ID
from lab.machines.deployments import docker_environment, podman_environment, singularity_environment
from lab.machines.laboratory import Laboratory, podman_obstacle
from lab.once import once
from lab.runs import Run

LONG = pytest.mark.long
READ = "note read; { read line; note $line; echo $line; cat; } < $file; note all"
#: The second half is written when the first was read.
WRITE = "exec 3> out.txt; echo first >&3; meet first; echo second >&3; exec 3>&-"
FALLBACK = "othing streams"
# Prints the files of a directory in the order of their names.
SCAN = """
import os
for entry in sorted(os.scandir(os.environ["dir"]), key=lambda entry: entry.name):
    print(open(entry.path).read(), end="")
"""


@pytest.fixture
def user(docker: Containers, common: Path) -> str:
    """An image whose user is not root."""

    return once(common / "image of a user", lambda: make_user_image(docker))


def stream() -> Document:
    """b reads bytes while a writes them."""
    return pair(producer(WRITE, "on_close", mode="no_update"), stream_reader())


def stream_reader(name: str = "") -> Document:
    script = READ.replace("note $line", f"note $line {name}".strip())
    return tool(script, {"file": streamable()}, {"out": "stdout"}, stdout=f"read{name}.txt")


def gate() -> Document:
    return pair(producer("meet read; echo first > out.txt; meet done", "on_close"), reader())


def stream_and_gate() -> Document:
    """b reads bytes while a writes them, and then waits for a file."""
    write = f"{WRITE}; meet read late; echo late > late.txt; meet done"
    rules = [{"port": "out", "mode": "no_update"}, {"port": "late"}]
    common = {"committed": "on_close", "start": "producer"}
    first = tool(
        f"{MEET}note start; {write}; note end",
        {},
        {"out": found("out.txt"), "late": found("late.txt")},
        [streaming(*({**rule, **common} for rule in rules))],
    )
    second = tool(
        f"{READ}; note read late; cat $late; note done",
        {"file": streamable(), "late": "File"},
        {"out": "stdout"},
        stdout="read.txt",
    )
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/out", "late": "a/late"}}}
    return workflow({}, steps, {"out": "a/out", "late": "a/late", "read": "b/out"})


def check_both_early(run: Run) -> None:
    """Check what :func:`stream_and_gate` describes."""
    for what in ("first", "done"):
        assert_early(run, what)
    assert run.files["read.txt"] == b"first\nsecond\nlate\n"
    check_nothing_fell_back(run)


def check_streamed(run: Run) -> None:
    assert_early(run, "first")
    assert run.files["read.txt"] == b"first\nsecond\n"
    check_nothing_fell_back(run)


def fallbacks(run: Run) -> list[str]:
    """The warnings of a run that something was not done as asked."""
    told = ("delivered at", FALLBACK, "when they are complete", "not while they are written")
    return [line for line in run.log.splitlines() if "WARNING" in line and any(words in line for words in told)]


def check_nothing_fell_back(run: Run) -> None:
    assert fallbacks(run) == []


def every_delivery() -> Document:
    """Each output of a reaches its readers in its own way, while a runs.

    b and e read bytes while they are written; b then waits for a file and for directories. A job of d starts when what
    it uses is committed.
    """
    script = """note start
exec 3> out.txt; echo first >&3; meet first b; meet first e; echo second >&3; exec 3>&-
meet read late; echo late > late.txt; meet got late
mkdir listed; for i in 1 2 3; do echo file $i > listed/$i; sleep 0.1; done; meet listed
mkdir scanned; for i in 3 1 2; do echo entry $i > scanned/$i; done
mkdir set; for i in 1 2; do echo of set $i > set/$i; done; echo alone > alone.txt
for name in y x; do echo $name > $name.element; meet used $name; done
note end"""
    reads = f"{READ.replace('note $line', 'note $line b')}; note read late; cat $late; note got late"
    listing = f"cat $(ls -d $listed/*); note listed; dir=$scanned python3 -c {shlex.quote(SCAN)}"
    closed, early = {"committed": "on_close"}, {"start": "producer"}
    rules: dict[str, Document] = {
        "out": {**closed, **early, "mode": "no_update"},
        "late": {**closed, **early},
        "listed": {"committed": "on_n_files", "nFiles": 3, **early},
        "scanned": {**closed, **early, "mode": "no_update"},
        "set": {"committed": "on_n_files", "nFiles": 2},
        "alone": closed,
        "elements": closed,
    }
    outputs = {name: found(name, "Directory") for name in ("listed", "scanned", "set")}
    outputs |= {name: found(f"{name}.txt") for name in ("out", "late", "alone")}
    outputs["elements"] = found("*.element", "File[]")
    writer = tool(MEET + script, {}, outputs, [streaming(*({"port": port, **rule} for port, rule in rules.items()))])
    inputs = {"file": streamable(), "late": "File", "listed": "Directory", "scanned": streamable("Directory")}
    user = tool(
        "cat $element $alone $set/*; note used $(basename $element .element)",
        {"element": "File", "alone": "File", "set": "Directory"},
        {"out": "stdout"},
        stdout="$(inputs.element.nameroot).used",
    )
    sources = {"file": "a/out", **{name: f"a/{name}" for name in ("late", "listed", "scanned")}}
    used = {"element": "a/elements", "alone": "a/alone", "set": "a/set"}
    steps: dict[str, Document] = {
        "a": {"run": writer, "in": {}},
        "b": {"run": tool(f"{reads}; {listing}", inputs, {"out": "stdout"}, stdout="read.txt"), "in": sources},
        "d": {"run": user, "in": used, "scatter": "element"},
        "e": {"run": stream_reader("e"), "in": {"file": "a/out"}},
    }
    return workflow({}, steps, {"all": "a/elements", **{name: f"{name}/out" for name in "abde"}})


#: The surroundings that a process inherits, without those that each job has of its own.
SURROUNDINGS = r"""
env -u HOME -u TMPDIR -u PWD -u OLDPWD -u HOSTNAME -u SFIO_JOB -u TRACE | sort
umask; ulimit -a; nice; cat /proc/self/oom_score_adj; readlink /proc/self/fd/0; ls /proc/self/fd
grep -E '^(Uid|Gid|Groups|Sig(Blk|Ign)|Cap|NoNewPrivs|Seccomp):' /proc/self/status
cut -d: -f3 /proc/self/cgroup | sed 's/[0-9a-f]\{64\}/ID/'
cut -d ' ' -f 6-8 /proc/self/stat | { read session terminal group; test $session -le $$ && echo $terminal $group; }
echo printed; echo error >&2
"""


def surroundings(name: str, *hints: Document) -> Document:
    script = f"{{ {SURROUNDINGS.strip()}\n}} > {name}.txt"
    return tool(script, {}, {"out": found(f"{name}.txt")}, list(hints))


def test_a_command_has_what_the_engine_gives(docker: Containers) -> None:
    """The engine starts jobs without hints, and `sfio-node serve` the others."""
    hint = streaming({"port": "out", "committed": "on_close"})
    steps: dict[str, Document] = {
        "a": {"run": surroundings("a", hint), "in": {}},
        "b": {"run": surroundings("b"), "in": {}},
        "c": {"run": tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="c.txt"), "in": {"file": "a/out"}},
    }
    run = docker.run(contained(workflow({}, steps, {name: f"{name}/out" for name in "abc"}), c=None))
    assert run.files["a.txt"].decode().splitlines() == run.files["b.txt"].decode().splitlines()
    assert len(run.files["a.txt"].splitlines()) > 30


def test_every_delivery_between_containers(docker: Containers) -> None:
    """One delivery goes from a container to the driver's node.

    Where an engine does not let the gate see a listing, that waits for all.
    """
    _, ours = docker.run_both(contained(every_delivery(), e=None))
    for what in ("read", "first b", "first e", "got late", "listed", "used y", "used x"):
        assert_early(ours, what)
    listed = b"".join(b"file %d\n" % i for i in (1, 2, 3)) + b"".join(b"entry %d\n" % i for i in (1, 2, 3))
    assert ours.files["read.txt"] == b"first\nsecond\nlate\n" + listed
    assert ours.files["reade.txt"] == b"first\nsecond\n"
    check_nothing_fell_back(ours)


@pytest.mark.parametrize("rule", ["on_termination", "on_close"])
@pytest.mark.parametrize("way", ["stream", "gate"])
def test_a_link_that_leads_nowhere_in_the_container(docker: Containers, way: str, rule: str) -> None:
    """The producer runs on the driver's node, where the directories of jobs have other paths."""
    mode = {"mode": "no_update"} if way == "stream" else {}
    written = producer('echo text > real.txt; ln -s real.txt near; ln -s "$PWD/near" out.txt', rule, **mode)
    read = tool("cat $file", {"file": streamable() if mode else "File"}, {"out": "stdout"}, stdout="read.txt")
    _, ours = docker.run_both(contained(pair(written, read), a=None))
    assert ours.files["read.txt"] == b"text\n"


def test_a_user_beside_root_where_little_is_allowed(docker: Containers, user: str) -> None:
    """Not the other way: plain StreamFlow makes the directory of an input as root, and the user cannot write there."""
    docker.is_for_others = True
    docker.options = {"readOnly": True, "capDrop": ["ALL"]}
    ours = docker.run_ours(contained(stream_and_gate(), a=user))
    check_both_early(ours)


@dataclass
class OfUser(Containers):
    """A bench of a user that may talk with the engine, and is not root."""

    def write(
        self,
        document: Document,
        job: Mapping[str, Any],
        io: bool,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        path = super().write(document, job, io, config, **settings)
        for written in (self.directory, *self.directory.rglob("*")):
            os.chown(written, LOGIN_ID, LOGIN_ID, follow_symlinks=False)
        return path


@pytest.fixture
def of_user(containers_laboratory: Laboratory) -> Iterator[OfUser]:
    become = ("setpriv", f"--reuid={LOGIN_ID}", f"--regid={LOGIN_ID}", "--clear-groups")
    if subprocess.run([*become, sys.executable, "-c", ""], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("another user may not run this Python")
    with tempfile.TemporaryDirectory(dir=containers_laboratory.directory) as place:
        os.chown(place, LOGIN_ID, LOGIN_ID)
        os.chmod(place, 0o755)
        environment = {**docker_environment(containers_laboratory), "HOME": place}
        bench = OfUser(Path(place), laboratory=containers_laboratory, environment=environment, prefix=become)
        yield bench
        bench.remove_containers()


@LONG
@pytest.mark.parametrize("local", ["a", "b", ""])
def test_a_driver_who_is_not_root(of_user: OfUser, local: str) -> None:
    """Files in containers belong to root, and files beside them to the user."""
    check_of_user(of_user, contained(stream_and_gate(), **{local: None} if local else {}))


@LONG
@pytest.mark.parametrize("local", ["a", "b", ""])
def test_rootless_podman(docker: Containers, of_user: OfUser, local: str) -> None:
    """The root user in its containers is the user."""
    if (reason := podman_obstacle()) is not None:
        pytest.skip(reason)
    podman = replace(of_user, environment={**of_user.environment, **podman_environment(docker.laboratory)})
    docker.docker("save", f"--output={(archive := podman.directory / 'image.tar')}", BUSYBOX)
    archive.chmod(0o644)
    try:
        podman.docker("load", f"--input={archive}")
        check_of_user(podman, contained(stream_and_gate(), **{"a": BUSYBOX, "b": BUSYBOX, local: None}))
    finally:
        podman.remove_containers()
        podman.docker("system", "migrate")  # Ends what keeps its user namespace.


def check_of_user(of_user: OfUser, document: Document) -> None:
    ours = of_user.run(document)
    assert ours.ok, ours.errors
    check_both_early(ours)
    assert [left for left in of_user.leftovers() if "catatonit -P" not in left] == []


@pytest.mark.parametrize("elsewhere", [True, pytest.param(False, marks=LONG)])
def test_nothing_can_be_started_on_the_volume(docker: Containers, elsewhere: bool) -> None:
    """The node runtime is started elsewhere, or all is as with plain StreamFlow, and the run says so."""
    docker.workdir = Path(tempfile.mkdtemp(dir=docker.laboratory.directory / "noexec"))
    docker.options = {} if elsewhere else {"readOnly": True}
    ours = docker.run_ours(contained(stream(), b=None))
    assert ours.files["read.txt"] == b"first\nsecond\n"
    if elsewhere:
        check_streamed(ours)
    else:
        told = [line for line in ours.log.splitlines() if "WARNING" in line and FALLBACK in line]
        assert told, ours.errors
        assert all("noexec" in line for line in told)


def test_podman(docker: Containers) -> None:
    if (reason := podman_obstacle()) is not None:
        pytest.skip(reason)
    podman = replace(docker, environment=podman_environment(docker.laboratory))
    ours = podman.run_ours(contained(stream_and_gate(), a=BUSYBOX, b=BUSYBOX))
    check_both_early(ours)


@pytest.mark.parametrize("a", [pytest.param(DEBIAN, marks=LONG), None])
def test_singularity(docker: Containers, a: str | None) -> None:
    environment = docker.environment | singularity_environment(docker.laboratory)
    singularity = replace(docker, environment=environment, engine="singularity")
    ours = singularity.run_ours(contained(stream_and_gate(), a=a))
    check_both_early(ours)
