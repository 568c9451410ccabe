"""The way in which a job reads its inputs, as sfio-node sees it, with real programs."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from lab.node import Event, Job, Node, output, wait_for
from lab.wording import uncoded

LINES = 20_000
AGAIN, MAPPED, SOUGHT, AT = "opened again", "mapped", "sought", "read at a position"
PROBED = "probed"
WRITING, EXECUTED, UNKNOWN, ASKED = "opened for writing", "executed", "unknown", "asked by path"


@pytest.fixture
def data(runtime: Node) -> Path:
    """An input of more than one buffer, with a link and a compressed copy beside it."""
    path = runtime.base / "in" / "f"
    path.write_text("".join(f"line {number}\n" for number in range(LINES)))
    (runtime.base / "in" / "f.gz").write_bytes(gzip.compress(path.read_bytes()))
    return path


def observed(*paths: Path) -> list[Event]:
    return [{"name": path.name, "path": str(path)} for path in paths]


def observe(runtime: Node, script: str, *paths: Path, **options: object) -> Job:
    """Runs a script of bash that has to succeed, in the base directory."""
    options.setdefault("observation", {"reads": observed(*paths)})
    command = ["bash", "-euc", f"cd {runtime.base}; {script}"]
    job = runtime.start("j", command, stdout=subprocess.DEVNULL, **options)  # type: ignore[arg-type]
    assert job.wait() == 0
    assert job.exit()["success"]
    return job


def verdicts(job: Job) -> dict[str, tuple[object, object]]:
    """Returns openings and reasons, by the name of the file."""
    used = [event for event in job.named("used") if not event["directory"]]
    started = job.named("started")[0]["time"]
    assert isinstance(started, float)
    for event in used:
        assert event["sequential"] == (not event["reasons"])
        first, last, ended = event["first"], event["last"], event["time"]
        assert isinstance(first, float)
        assert isinstance(last, float)
        assert isinstance(ended, float)
        assert started - 1 < first <= last <= ended
    names = [os.path.basename(str(event["path"])) for event in used]
    assert len(set(names)) == len(names), used
    return {name: (event["opens"], event["reasons"]) for name, event in zip(names, used, strict=True)}


INHERITED = """
import os, signal
if {ignored}: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
opened = os.open("in/f", os.O_RDONLY)
if os.fork() == 0:
    if {ignored} or os.fork() == 0:
        while os.read(opened, 1 << 16): pass
    os._exit(0)
try: os.wait()
except ChildProcessError: pass
os.close(opened)
opened = os.open("in/f", os.O_RDONLY)
os.write(1, os.read(opened, 1 << 20))
"""
SEQUENTIAL = [
    "cat in/f",
    "cat < in/f",
    "cat in/f | sort | tail -n 1",
    "md5sum in/f",
    "awk '{n += $2} END {print n}' in/f",
    "sed s/line/x/ in/f",
    "cut -c 1-3 in/f",
    "wc -l in/f",
    "wc -c in/f",  # it asks for the size only
    "exec 7< in/f; (cat <&7)",
    "(exec 7< in/f; (sleep 0.1; cat <&7) &)",  # whoever has opened it has ended
    "(cd in; cat ./../in//f)",
    "ln -s in/f link; ln -s $PWD/link second; cat second",
    "dd if=in/f of=/dev/null bs=1k status=none",
    "test -r in/f; cat in/f",
    "head -c 100000000 in/f",
    f"{sys.executable} -ISc 'for line in open(\"in/f\"): pass'",
    f'{sys.executable} -ISc \'import hashlib; hashlib.md5(open("in/f", "rb").read())\'',
    f"{sys.executable} -ISc 'import threading as t; x = t.Thread(target=open(\"in/f\").read); x.start(); x.join()'",
    "perl -ne '$n++' in/f",
    f'{sys.executable} -ISc \'open("in/f").close(); open("in/f").read()\'',
]
OTHERWISE = [
    ("sort in/f", 1, [ASKED]),
    ("ln in/f name; cat name", 1, [ASKED]),
    ("ls -l in; cat in/f", 1, [ASKED]),
    ("ln -s $PWD/in/f link; [ -s link ] && cat in/f", 1, [ASKED]),
    (f'{sys.executable} -ISc \'import os; os.path.getsize("in/f"); open("in/f").read()\'', 1, [ASKED]),
    (f'{sys.executable} -ISc \'import os; os.access("in/f", os.W_OK); open("in/f").read()\'', 1, [ASKED]),
    (f'{sys.executable} -ISc \'import os; os.path.islink("in/f"); open("in/f").read()\'', 1, [ASKED]),
    ("cat in/f; cat in/f", 2, [AGAIN]),
    ("cat in/f & cat in/f & wait", 2, [AGAIN]),
    ("for i in $(seq 20); do cat in/f & done; wait", 20, [AGAIN]),
    ("paste in/f in/f", 2, [AGAIN]),
    # Another process reads the opened file, while the first process opens it again; or it has read it, and is gone.
    ("exec 7< in/f; (sleep 0.1; cat <&7) & exec 7<&-; exec 7< in/f; cat <&7; wait", 2, [AGAIN]),
    (f"{sys.executable} -ISc '{INHERITED.format(ignored=False)}'", 2, [AGAIN]),
    (f"{sys.executable} -ISc '{INHERITED.format(ignored=True)}'", 2, [AGAIN]),
    (f'{sys.executable} -ISc \'f = open("in/f"); open("in/f").read(); f.read()\'', 2, [AGAIN]),
    (f"{sys.executable} -ISc 'f = open(\"in/f\"); f.seek(0, 2); f.seek(0); f.read()'", 1, [PROBED]),
    ("exec < in/f; cat /dev/stdin", 2, [AGAIN]),
    ("exec 7< in/f; cat /proc/self/fd/7", 2, [AGAIN]),
    ("head -n 1 in/f", 1, [PROBED]),
    ("tail -c 10 in/f", 1, [SOUGHT]),
    ("grep -c 7 in/f", 1, [PROBED]),  # it looks for holes
    ("while read -r line; do [ $line != 'line 9' ] || break; done < in/f", 1, [PROBED]),
    ("dd if=in/f of=/dev/null bs=1k skip=3 status=none", 1, [SOUGHT]),
    (f"{sys.executable} -ISc 'f = open(\"in/f\"); f.read(9); f.seek(0)'", 1, [SOUGHT]),
    (f"{sys.executable} -ISc 'import os; os.pread(os.open(\"in/f\", 0), 9, 9)'", 1, [AT]),
    (f"{sys.executable} -ISc 'import os; os.preadv(os.open(\"in/f\", 0), [bytearray(9)], 9)'", 1, [AT]),
    (f"{sys.executable} -ISc 'import os; os.sendfile(1, os.open(\"in/f\", 0), 0, 9)' | cat", 1, [AT]),
    (
        f"{sys.executable} -ISc 'import mmap; f = open(\"in/f\"); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)'",
        1,
        [MAPPED],
    ),
    ("echo more >> in/f", 0, [WRITING]),
    ("exec 7<> in/f", 1, [WRITING]),
]


@pytest.mark.parametrize("script", SEQUENTIAL)
def test_front_to_back(runtime: Node, data: Path, script: str) -> None:
    job = observe(runtime, script, data)
    assert verdicts(job) == {"f": (1, [])}
    assert [event["event"] for event in job.events()][-2:] == ["used", "exit"]
    assert not job.named("warning")


@pytest.mark.parametrize(("script", "opens", "reasons"), OTHERWISE)
def test_otherwise(runtime: Node, data: Path, script: str, opens: int, reasons: list[str]) -> None:
    assert verdicts(observe(runtime, script, data)) == {"f": (opens, reasons)}


@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        ("gzip -dc in/f.gz", []),
        ("zcat in/f.gz | tail -n 1", []),
        (f"{sys.executable} -ISc 'import gzip; gzip.open(\"in/f.gz\").read()'", []),
        (f'{sys.executable} -ISc \'import zipfile; zipfile.ZipFile("in/f.zip").read("f")\'', [PROBED, SOUGHT]),
        (f'{sys.executable} -ISc \'import tarfile; tarfile.open("in/f.tar", "r|").extractfile\'', []),
    ],
)
def test_archives(runtime: Node, data: Path, script: str, reasons: list[str]) -> None:
    inputs = [data.with_name(f"f.{suffix}") for suffix in ("gz", "zip", "tar")]
    with zipfile.ZipFile(inputs[1], "w") as archive:
        archive.write(data, "f")
    subprocess.run(["tar", "-cf", inputs[2], data.name], cwd=data.parent, check=True)
    found = verdicts(observe(runtime, script, *inputs))
    assert list(found.values()) == [(1, reasons)]


@pytest.mark.skipif(shutil.which("samtools") is None, reason="no samtools")
def test_samtools(runtime: Node) -> None:
    sam = runtime.base / "in" / "f.sam"
    reads = "".join(f"r{number}\t0\tc\t{number + 1}\t60\t4M\t*\t0\t0\tACGT\tIIII\n" for number in range(999))
    sam.write_text(f"@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:c\tLN:5000\n{reads}")
    bam, whole = sam.with_suffix(".bam"), runtime.base / "in" / "whole.bam"
    for target in (bam, whole):
        subprocess.run(["samtools", "view", "-b", "-o", target, sam], check=True)
    subprocess.run(["samtools", "index", bam], check=True)
    script = "samtools view -c in/f.bam c:100-200; samtools view -c in/f.sam; samtools view -c in/whole.bam"
    found = verdicts(observe(runtime, script, bam, sam, whole))
    assert ASKED in str(found["f.bam"])  # whether it is older than its index
    assert found["f.sam"] == (1, [])
    assert found["whole.bam"] == (1, [PROBED])  # it looks for the mark at the end, where it can


def test_what_is_not_opened(runtime: Node, data: Path) -> None:
    job = observe(runtime, "ls -l in; stat in/f; test -r in/f; cat in/f.gz", data, data.with_name("missing"))
    assert verdicts(job) == {}


def test_standard_input(runtime: Node, data: Path) -> None:
    inputs = observed(data)
    for name, command, opens, reasons in [
        ("cat", ["cat"], 1, []),
        ("head", ["head", "-n", "1"], 1, [PROBED]),
        ("again", ["cat", "/dev/stdin"], 2, [AGAIN]),
        ("both", ["sh", "-c", f"cat; cat {data}"], 2, [AGAIN]),
        ("never", ["true"], 1, []),
    ]:
        text = json.dumps({"name": name, "observation": {"reads": inputs}, "command": {"stdin": str(data)}})
        job = runtime.start(name, command, job=text, stdout=subprocess.DEVNULL)
        assert job.wait() == 0
        assert verdicts(job) == {"f": (opens, reasons)}, name
    with data.open() as file:
        job = runtime.start(
            "inherited", ["cat"], observation={"reads": inputs}, stdin=file.fileno(), stdout=subprocess.DEVNULL
        )
    assert job.wait() == 0
    assert verdicts(job) == {"f": (1, [])}


@pytest.mark.parametrize(
    ("script", "whole"),
    [
        ("sort | (read line; sleep 0.3; echo $line; cat)", True),
        ("head -c 100000; sleep 0.1; sed s/line/x/", False),
        ("sleep 0.1", True),  # which it was given, and never read
    ],
)
def test_what_is_read_before_anything_is_written(runtime: Node, data: Path, script: str, whole: bool) -> None:
    result = runtime.base / "out" / "sorted"
    command = ["bash", "-c", f"sleep 0.1; {script}"]
    spec = {
        "name": "j",
        "command": {"stdin": str(data), "stdout": str(result)},
        "observation": {"reads": observed(data), "io": True},
        "outputs": [output(runtime.base / "out", "sorted")],
    }
    job = runtime.start("j", command, job=json.dumps(spec))
    assert job.wait() == 0
    (used,) = job.named("used")
    assert used["whole"] is whole
    exit_event, read = job.exit(), used["read"]
    assert isinstance(read, float)
    assert isinstance(exit_event["started"], float)
    assert isinstance(exit_event["ended"], float)
    assert exit_event["started"] <= read <= exit_event["ended"]


def test_a_directory(runtime: Node, data: Path) -> None:
    directory = runtime.base / "in" / "d"
    (directory / "deep" / "er").mkdir(parents=True)
    for name in ("a", "b", "deep/er/c", "unread"):
        (directory / name).write_text("text")
    (directory / "linked").symlink_to(data)
    script = "cat in/d/a in/d/deep/er/c in/f; dd if=in/d/b bs=1 skip=1 status=none"
    job = observe(runtime, script, directory)
    assert verdicts(job) == {"a": (1, []), "b": (1, [SOUGHT]), "c": (1, []), "linked": (1, [])}
    used = job.named("used")
    assert {event["name"] for event in used} == {"d"}
    assert used[1]["path"] == str(directory / "deep" / "er" / "c")


def test_a_directory_that_is_listed(runtime: Node, data: Path) -> None:
    directory = runtime.base / "in" / "d"
    (directory / "deep").mkdir(parents=True)
    job = observe(runtime, "cd in/d; ls deep ../f", directory)
    (listed,) = job.named("used")
    assert (listed["path"], listed["opens"], listed["directory"]) == (str(directory / "deep"), 0, True)


def test_a_directory_of_many_files(runtime: Node) -> None:
    directory = runtime.base / "in" / "d"
    directory.mkdir()
    for number in range(1010):
        (directory / f"{number:04}").write_text("")
    found = verdicts(observe(runtime, "cat in/d/*", directory))
    assert list(found) == [f"{number:04}" for number in range(1000)]
    assert set(map(str, found.values())) == {"(1, [])"}


def test_a_program(runtime: Node, data: Path) -> None:
    program = runtime.base / "in" / "program"
    true = shutil.which("true")
    assert true is not None
    shutil.copy(true, program)
    script = runtime.base / "in" / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    found = verdicts(observe(runtime, "in/program; in/script", program, script))
    assert set(found) == {"program", "script"}
    assert found["program"][0] == 1
    assert EXECUTED in str(found["program"][1])
    assert found["script"][0] == 2


def test_a_command_that_fails(runtime: Node, data: Path) -> None:
    job = runtime.shell("j", f"cat {data} > /dev/null; kill -9 $$", observation={"reads": observed(data)})
    assert job.wait() == -signal.SIGKILL
    assert verdicts(job) == {"f": (1, [])}
    job = runtime.start("k", ["no-such-program"], observation={"reads": observed(data)}, stderr=subprocess.DEVNULL)
    assert job.wait() == 127
    assert verdicts(job) == {}


def test_without_a_gate(runtime: Node, data: Path) -> None:
    environment = {**os.environ, "SFIO_NODE_WITHOUT_GATE": "1"}
    job = observe(runtime, "cat in/f.gz", data.with_name("f.gz"), environment=environment)
    assert verdicts(job) == {}
    [warning] = job.named("warning")
    told = "no gate (SFIO_NODE_WITHOUT_GATE is set): how the command reads is not observed"
    assert uncoded(str(warning["message"])) == told
    text = json.dumps({"name": "k", "observation": {"reads": observed(data)}, "command": {"stdin": str(data)}})
    job = runtime.start("k", ["cat"], job=text, environment=environment, stdout=subprocess.DEVNULL)
    assert job.wait() == 0
    assert verdicts(job) == {"f": (1, [UNKNOWN])}


def test_a_job_in_a_job(runtime: Node, data: Path) -> None:
    """A process can have one listener only: the inner job is not observed, the outer one is.

    Only root may look into the inner `exec`. Another user learns that something cannot be seen.
    """
    inner = runtime.run / "jobs" / "inner"
    inner.mkdir()
    other = data.with_name("f.gz")  # which the inner exec looks at
    (inner / "job.json").write_text(json.dumps({"name": "inner", "observation": {"reads": observed(other)}}))
    job = observe(runtime, f"{runtime.binary} exec --job {inner} -- cat in/f", data)
    assert verdicts(job) == {"f": (1, [UNKNOWN] if os.geteuid() else [])}
    events = (inner / "events.jsonl").read_text()
    assert "seccomp listener already" in events
    assert '"used"' not in events


IO_URING = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.syscall(425, 4, ctypes.create_string_buffer(120))
open(sys.argv[1]).read()
"""


def test_what_cannot_be_seen(runtime: Node, data: Path) -> None:
    job = runtime.python("j", IO_URING, data, observation={"reads": observed(data)})
    assert job.wait() == 0
    assert verdicts(job) == {"f": (1, [UNKNOWN])}


CALL_OF_32_BITS = """
int main(void) { int id; __asm__ volatile("int $0x80" : "=a"(id) : "a"(20) : "memory"); return 0; }
"""


@pytest.mark.skipif(
    shutil.which("gcc") is None or os.uname().machine != "x86_64", reason="no C compiler, or not of x86"
)
def test_calls_of_32_bits(runtime: Node, data: Path) -> None:
    source = runtime.base / "call.c"
    source.write_text(CALL_OF_32_BITS)
    subprocess.run(["gcc", "-o", runtime.base / "call", source], check=True)
    job = runtime.shell(
        "j", f"cat {data}; {runtime.base}/call", observation={"reads": observed(data)}, stdout=subprocess.DEVNULL
    )
    if job.wait() != 0:
        pytest.skip("a kernel without calls of 32 bits")
    assert verdicts(job) == {"f": (1, [UNKNOWN])}


SIGNALS = """
import os, signal, sys, threading
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
def read():
    for _ in range(200):
        descriptor = os.open(sys.argv[1], os.O_RDONLY)
        os.lseek(descriptor, 5, os.SEEK_SET)
        assert os.pread(descriptor, 4, 0) == b"line"
        os.close(descriptor)
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads: thread.start()
read()
for thread in threads: thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_signals_and_threads(runtime: Node, data: Path) -> None:
    """A call that a signal interrupts before it was answered is made again, and counts once."""
    job = runtime.python("j", SIGNALS, data, observation={"reads": observed(data)})
    assert job.wait() == 0
    assert verdicts(job) == {"f": (1000, [AGAIN, AT, SOUGHT])}


def gate(runtime: Node, name: str, kind: str) -> Event:
    events = runtime.run / "jobs" / "p" / "events.jsonl"
    paths = {"path": str(runtime.base / "out" / name), "target": str(runtime.base / "in" / name)}
    return {"name": name, "port": name, "events": str(events), "kind": kind, **paths}


def test_what_comes_through_gates(runtime: Node, data: Path) -> None:
    """One filter holds and observes."""
    out = runtime.base / "out"
    outputs = [output(out, "g", "on_close", port="g"), output(out, "d", "on_close", kind="directory", port="d")]
    made = "sleep 0.1; mkdir d; for i in 1 2 3; do echo $i > d/$i; sleep 0.05; done; echo text > g"
    runtime.shell("p", f"cd {out}; {made}", outputs=outputs)
    inputs = runtime.base / "in"
    read = "cat in/d/1; dd if=in/d/2 bs=1 skip=1 status=none; cat in/g; cat in/g; cat in/f"
    gates = [gate(runtime, "d", "directory"), gate(runtime, "g", "file")]
    job = observe(runtime, read, inputs / "d", inputs / "g", data, gates=gates)
    assert verdicts(job) == {"1": (1, []), "2": (1, [SOUGHT]), "g": (2, [AGAIN]), "f": (1, [])}
    assert [event["name"] for event in job.named("used")] == ["d", "d", "g", "f"]


def told(job: Job, *names: str) -> list[tuple[object, ...]]:
    """Returns events of outputs: their names, ports, files and closes."""
    found = [event for event in job.events() if event["event"] in names]
    return [
        (event["event"], event["port"], os.path.basename(str(event.get("path", ""))), event.get("closes"))
        for event in found
    ]


WRITES = "mkdir d; echo 1 > d/a; echo 1 > b; for i in 1 2 3; do echo $i >> c; done; : > done"
#: The job ends when the test has seen what was told of it.
UNTIL_SEEN = "until [ -e ../seen ]; do sleep 0.01; done"


@pytest.mark.parametrize("is_observed", [False, True])
def test_outputs(runtime: Node, is_observed: bool) -> None:
    out = runtime.base / "out"
    outputs = [
        output(out, "d", kind="directory", port="d"),
        {"port": "b", "root": str(out), "kind": "file", "globs": ["b"], "rules": []},
        output(out, "c", port="c"),
        output(out, "done", "on_close", port="done"),
    ]
    options: dict[str, object] = {"observation": {"reads": []}} if is_observed else {}
    job = runtime.shell("j", f"cd {out}; {WRITES}; {UNTIL_SEEN}", outputs=outputs, **options)
    closed = [("b", 1), ("c", 1), ("c", 2), ("c", 3), ("a", 1), ("done", 1)]
    expected = sorted(closed if is_observed else [("done", 1)])
    wait_for(lambda: len(job.named("closed")) == len(expected) and job.named("complete"), "what is told while it runs")
    seen = time.time()
    (runtime.base / "seen").touch()
    assert job.wait() == 0
    assert sorted((str(name), closes) for _, _, name, closes in told(job, "closed")) == expected  # type: ignore[type-var]
    committed = told(job, "committed", "entry", "complete")
    assert committed[:2] == [("committed", "done", "done", None), ("complete", "done", "", None)]
    assert sorted(name for event, _, name, _ in committed if event != "complete") == ["a", "b", "c", "done"]
    assert [port for event, port, *_ in committed if event == "complete"] == ["done", "d", "b", "c"]
    assert not job.named("used")
    if is_observed:
        times = [event["time"] for event in job.named("opened") + job.named("closed")]
        assert all(isinstance(at, float) and at <= seen for at in times)


def test_a_close_in_a_failure_is_not_told(runtime: Node) -> None:
    out = runtime.base / "out"
    job = runtime.python(
        "j", f"import os; f = open('{out}/f', 'w'); os._exit(3)", observation={"reads": []}, outputs=[output(out, "f")]
    )
    assert job.wait() == 3
    assert told(job, "opened", "closed", "committed") == [("opened", "out", "f", None)]


@pytest.mark.parametrize("committed", ["on_termination", "on_close"])
def test_each_file_of_a_directory_is_told(runtime: Node, committed: str) -> None:
    out = runtime.base / "out"
    outputs = [output(out, "d", committed, kind="directory", port="d")]
    script = f"cd {out}; mkdir d; echo 1 > d/a; echo 2 > d/b; {UNTIL_SEEN}"
    job = runtime.shell("j", script, outputs=outputs, observation={"reads": []})
    wait_for(lambda: len(job.named("closed")) == 2, "both closes")
    (runtime.base / "seen").touch()
    assert job.wait() == 0
    # The first one may be found when the directory is looked at, and is closed after the grace then.
    assert sorted(told(job, "opened")) == [("opened", "d", "a", None), ("opened", "d", "b", None)]  # type: ignore[type-var]
    assert sorted(told(job, "closed")) == [("closed", "d", "a", 1), ("closed", "d", "b", 1)]  # type: ignore[type-var]
    wait_for(lambda: "exit" in [event["event"] for event in job.served()], "the end of what is printed")
    printed = [event["path"] for event in job.served() if event["event"] == "closed"]
    assert set(printed) == {f"{out}/d/a", f"{out}/d/b"}


@pytest.mark.parametrize("of_job", [{}, {"observation": {"reads": []}}], ids=["plain", "observed"])
def test_who_writes_for_nobody_ends(runtime: Node, of_job: dict[str, object]) -> None:
    """SIGPIPE kills whoever does not ask for something else. Programs in Rust ignore it."""
    script = 'yes | head -n 1 > /dev/null; exit "${PIPESTATUS[0]}"'
    assert runtime.start("j", ["bash", "-c", script], **of_job).wait() == 128 + signal.SIGPIPE  # type: ignore[arg-type]
