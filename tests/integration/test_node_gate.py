"""The gate of sfio-node: a command starts at once, and waits exactly where it touches what is not committed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.node import TIMEOUT, Event, Job, Node, output, wait_for

#: Follows the lines of its standard input: `write NAME TEXT`, `mkdir NAME`, `end CODE`.
PRODUCER = """
import os, sys
for line in sys.stdin:
    word, name, text = (line.split() + ["", ""])[:3]
    if word == "write":
        with open(name, "w") as f: f.write(text)
    elif word == "mkdir": os.makedirs(name)
    elif word == "end": sys.exit(int(name))
"""


class Producer:
    """A job that does what it is told; its outputs are below `out`."""

    def __init__(self, runtime: Node, **watched: object) -> None:
        self.directory = runtime.base / "out"
        outputs = [output(self.directory, **watched)]  # type: ignore[arg-type]
        words = ["env", f"--chdir={self.directory}", sys.executable, "-ISuc", PRODUCER]
        self.job = runtime.start("p", words, outputs=outputs, stdin=subprocess.PIPE)

    def tell(self, *words: str) -> None:
        orders = self.job.process.stdin
        assert orders is not None
        orders.write(f"{' '.join(words)}\n".encode())
        orders.flush()

    def commit(self, name: str, text: str) -> None:
        """Writes a file, and returns when it is committed."""
        self.tell("write", name, text)
        wait_for(lambda: Path(name).name in self.job.committed(), f"{name} committed")

    def end(self, code: int = 0) -> int:
        self.tell("end", str(code))
        return self.job.wait()


@pytest.fixture
def runtime_with_gate(runtime: Node) -> Node:
    (runtime.base / "in").mkdir(exist_ok=True)
    (runtime.base / "out").mkdir(exist_ok=True)
    return runtime


def gate(runtime: Node, path: str, kind: str = "file", mode: str | None = None) -> Event:
    found: Event = {
        "name": "g",
        "port": "out",
        "path": str(runtime.base / "out" / path),
        "events": str(runtime.run / "jobs" / "p" / "events.jsonl"),
        "target": str(runtime.base / "in" / path),
        "kind": kind,
    }
    return found if mode is None else {**found, "mode": mode}


def sleeps_in_call(job: Job) -> bool:
    """Whether a process of the job waits for an answer of the gate."""
    for pid in job.processes():
        try:
            if "seccomp" in Path(f"/proc/{pid}/wchan").read_text():
                return True
        except OSError:
            continue
    return False


def consume(runtime: Node, script: str, entry: Event, name: str = "c", **options: object) -> Job:
    shell = f"cd {runtime.base}; echo > began; {script}"
    return runtime.shell(name, shell, gates=[entry], **options)


def began(runtime: Node) -> None:
    wait_for((runtime.base / "began").exists, "the consumer")


def text(path: Path) -> str:
    return path.read_text().strip()


@pytest.mark.parametrize(
    "read",
    [
        "cat in/f",
        "cat < in/f",
        "cd in; cat f",
        "cd /; cat $OLDPWD/in/../in//./f",
        "ln -s in/f link; ln -s link second; cat second",
        "ln -s $PWD/in elsewhere; cat elsewhere/f",
        "test -e in/f && test -s in/f && cat in/f",
        "dd if=in/f status=none",
        "sh -c 'sh -c \"cat in/f\"'",
        "(cat in/f)",
        "cp in/f copy; cat copy",
        "wc -c < in/f | tr -d ' ' | sed s/5/whole/",
        "cat in/*",
        "find in -mindepth 1 -exec cat {} \\;",
    ],
)
def test_whoever_touches_it_waits(runtime_with_gate: Node, read: str) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = consume(runtime, f"({read}) > result", gate(runtime, "f"))
    began(runtime)
    producer.tell("write", "f", "whole")
    producer.job.wait_for("opened")
    time.sleep(0.05)
    assert job.process.poll() is None, "it did not wait"
    assert not (runtime.base / "in" / "f").is_symlink()
    assert producer.end() == 0
    assert job.wait() == 0
    assert text(runtime.base / "result") == "whole"
    assert os.readlink(runtime.base / "in" / "f") == str(runtime.base / "out" / "f")


@pytest.mark.parametrize(
    "make",
    ["mkdir in/f", "mkfifo in/f", "ln -s $PWD/began in/f", "ln began in/f", "cd in && mkdir f"],
)
def test_what_would_be_made_at_the_name_of_an_input_waits(runtime_with_gate: Node, make: str) -> None:
    """The call fails then, because the input exists."""
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = consume(runtime, f"({make}) 2> /dev/null; echo $? > code; cat in/f > copy", gate(runtime, "f"))
    wait_for(lambda: sleeps_in_call(job) or job.process.poll() is not None, "a call that waits")
    producer.tell("write", "f", "whole")
    assert producer.end() == 0
    assert job.wait() == 0
    assert (text(runtime.base / "code"), text(runtime.base / "copy")) == ("1", "whole")


def test_a_file_may_take_the_place_of_an_input(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = consume(runtime, "echo other > o; mv o in/f; cat in/f > copy", gate(runtime, "f"))
    wait_for(lambda: sleeps_in_call(job) or job.process.poll() is not None, "a call that waits")
    producer.tell("write", "f", "whole")
    assert producer.end() == 0
    assert job.wait() == 0
    assert (text(runtime.base / "copy"), text(runtime.base / "out" / "f")) == ("other", "whole")


def test_other_files_are_read_meanwhile(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f", committed="on_close")
    job = consume(runtime, "ls / > other; cp other done; cat in/f > result", gate(runtime, "f"))
    wait_for((runtime.base / "done").exists, "what it does before")
    job.wait_for("gate")  # The node runtime has seen that.
    began = time.monotonic()
    time.sleep(0.2)
    waited = time.monotonic() - began
    producer.commit("f", "text")
    assert job.wait() == 0
    assert text(runtime.base / "result") == "text"
    exit_event = job.exit()
    assert waited - 0.01 <= exit_event["usage"]["held"] <= exit_event["ended"] - exit_event["started"]
    assert producer.job.process.poll() is None
    assert producer.end() == 0


def test_a_command_that_is_an_input(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="program", committed="on_close")
    echo = shutil.which("echo")
    assert echo is not None
    shutil.copy(echo, runtime.base / "out" / "program.part")
    job = runtime.start("c", [runtime.base / "in" / "program", "spoken"], gates=[gate(runtime, "program")],
                        stdout=subprocess.PIPE)  # fmt: skip
    job.wait_for("started")
    wait_for(lambda: sleeps_in_call(job), "the call that waits")
    os.rename(runtime.base / "out" / "program.part", runtime.base / "out" / "program")
    assert job.process.communicate(timeout=TIMEOUT)[0] == b"spoken\n"
    assert job.wait() == 0
    assert producer.end() == 0


def test_a_program_that_does_not_exist(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = runtime.start("c", ["no-such-program"], gates=[gate(runtime, "f")], stderr=subprocess.PIPE)
    assert job.wait() == 127
    assert "cannot run no-such-program" in str(job.exit()["message"])
    assert producer.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_command_that_waits_can_be_killed(runtime_with_gate: Node, number: signal.Signals) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = consume(runtime, "cat in/f", gate(runtime, "f"))
    wait_for(lambda: sleeps_in_call(job), "the call that waits")
    os.kill(job.process.pid, number)
    assert job.wait() == -number
    assert producer.end() == 0
    assert not (runtime.base / "in" / "f").exists()


def test_a_signal_handler_runs_while_it_waits(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: open('handled', 'w').close())\n"
        "open('ready', 'w').close()\n"
        "print(open('in/f').read())"
    )
    job = runtime.start("c", ["env", f"--chdir={runtime.base}", sys.executable, "-ISc", script],
                        gates=[gate(runtime, "f")], stdout=subprocess.PIPE)  # fmt: skip
    wait_for((runtime.base / "ready").exists, "the command")
    wait_for(lambda: sleeps_in_call(job), "the call that waits")
    os.kill(job.command_pid(), signal.SIGUSR1)
    wait_for((runtime.base / "handled").exists, "the handler")
    producer.tell("write", "f", "text")
    assert producer.end() == 0
    assert job.process.communicate(timeout=TIMEOUT)[0] == b"text\n"


@pytest.mark.parametrize("code", [0, 3])
def test_a_producer_that_ends_without_the_file(runtime_with_gate: Node, code: int) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = consume(runtime, "cat in/f; echo $? > survived", gate(runtime, "f"))
    began(runtime)
    assert producer.end(code) == code
    assert job.wait() == 75
    assert (job.exit()["reason"], job.exit()["input"]) == ("producer", "g")
    assert not (runtime.base / "survived").exists()


def linking(runtime: Node, entry: Event, **options: object) -> Job:
    """A job whose output is a link to its input; its command has ended when this returns."""
    (runtime.base / "linked").mkdir()
    job = consume(runtime, f"ln -s {entry['target']} linked/link", entry, **options)
    command = job.command_pid()
    wait_for(lambda: not Path(f"/proc/{command}").exists(), "the end of the command")
    return job


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_command_may_end_before_the_commit(runtime_with_gate: Node, kind: str) -> None:
    """An output may lead to the input, and is complete when the job has ended."""
    runtime = runtime_with_gate
    name = "f" if kind == "file" else "d"
    producer = Producer(runtime, globs=name, kind=kind)
    if kind == "directory":
        producer.tell("mkdir", "d")
        producer.tell("write", "d/a", "1")
    job = linking(runtime, gate(runtime, name, kind))
    producer.tell("write", "f" if kind == "file" else "d/b", "whole")
    assert producer.end() == 0
    assert job.wait() == 0
    link = runtime.base / "linked" / "link"
    assert text(link if kind == "file" else link / "b") == "whole"


def test_an_output_that_is_a_link_is_committed_with_the_input(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = linking(runtime, gate(runtime, "f"), outputs=[output(runtime.base / "linked", "link", port="link")])
    producer.tell("write", "f", "whole")
    assert producer.end() == 0
    assert job.wait() == 0
    assert [(event["path"], event["size"]) for event in job.named("committed")] == [
        (str(runtime.base / "linked" / "link"), 5)
    ]


def test_a_producer_that_fails_after_the_end_of_the_command(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = linking(runtime, gate(runtime, "f"), outputs=[output(runtime.base / "linked", "link", port="link")])
    assert producer.end(3) == 3
    assert job.wait() == 75
    assert (job.exit()["reason"], job.exit()["input"]) == ("producer", "g")
    assert not os.path.lexists(runtime.base / "in" / "f")


@pytest.mark.parametrize("how", ["signal", "driver"])
def test_a_job_that_waits_after_the_end_of_its_command_can_be_cancelled(runtime_with_gate: Node, how: str) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    job = linking(runtime, gate(runtime, "f"), outputs=[output(runtime.base / "linked", "link", port="link")])
    if how == "signal":
        os.kill(job.process.pid, signal.SIGTERM)
    else:
        job.cancel()
    job.wait()
    assert (job.exit()["reason"], job.exit()["success"]) == ("cancelled", False)
    assert producer.end() == 0


def test_files_of_a_directory_by_name(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="d", kind="directory", committed="on_close")
    names = "a sub/b sub/deep/c"
    script = f"for n in {names}; do cat in/d/$n > r; mv r got-$(basename $n); done; cat in/d/never; echo $? > never"
    job = consume(runtime, script, gate(runtime, "d", "directory"), stderr=subprocess.DEVNULL)
    producer.tell("mkdir", "d/sub/deep")
    for name in ["d/a", "d/sub/b", "d/sub/deep/c"]:
        wait_for(lambda: sleeps_in_call(job), "the call that waits")
        producer.commit(name, name)
        got = runtime.base / f"got-{Path(name).name}"
        wait_for(got.exists, str(got))
        assert text(got) == name
    wait_for(lambda: sleeps_in_call(job), "the wait for a name that never comes")
    assert producer.end() == 0
    assert job.wait() == 0
    assert text(runtime.base / "never") == "1"


LIST = """
import os, sys
with os.scandir(sys.argv[1]) as entries:
    for entry in entries:
        print(entry.name, entry.is_file(follow_symlinks=False), entry.is_dir(), flush=True)
"""


@pytest.mark.parametrize("mode", ["update", "no_update"])
def test_listings(runtime_with_gate: Node, mode: str) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="d", kind="directory", committed="on_n_files", n_files=3)
    listing = runtime.base / "listing"
    with listing.open("wb") as file:
        job = runtime.python("c", LIST, runtime.base / "in" / "d", gates=[gate(runtime, "d", "directory", mode)],
                             stdout=file)  # type: ignore[arg-type]  # fmt: skip
    producer.tell("mkdir", "d/sub")
    wait_for(lambda: sleeps_in_call(job), "the call that waits")
    seen = []
    for name in ["d/a", "d/sub/b"]:
        producer.commit(name, "text")
        seen.append(f"{'sub False True' if 'sub' in name else 'a True False'}\n")
        if mode == "no_update":
            wait_for(lambda: listing.read_text() == "".join(seen), "the entry")
        else:
            time.sleep(0.02)
            assert listing.read_text() == ""
    assert job.process.poll() is None
    producer.tell("write", "d/c", "text")
    assert job.wait() == 0
    assert sorted(listing.read_text().splitlines()) == ["a True False", "c True False", "sub False True"]
    assert producer.job.process.poll() is None
    assert producer.end() == 0


def test_many_files_are_listed_once(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    script = "mkdir out/d; for i in $(seq 1500); do echo $i > out/d/file-$i; done"
    runtime.shell("p", f"cd {runtime.base}; {script}",
                  outputs=[output(runtime.base / "out", "d", kind="directory", committed="on_close")])  # fmt: skip
    entry = gate(runtime, "d", "directory", "no_update")
    job = consume(runtime, "ls -U in/d > listing; ls in/d | wc -l > second; cat in/d/* | wc -l > lines", entry)
    assert job.wait() == 0
    names = (runtime.base / "listing").read_text().split()
    assert sorted(names) == sorted(f"file-{number}" for number in range(1, 1501))
    assert (text(runtime.base / "second"), text(runtime.base / "lines")) == ("1500", "1500")


def test_a_directory_without_a_rule_waits_for_the_end(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="d", kind="directory")
    job = consume(runtime, "find in/d -type f | sort > found", gate(runtime, "d", "directory"))
    producer.tell("mkdir", "d/empty")
    producer.tell("write", "d/a", "text")
    wait_for(lambda: sleeps_in_call(job), "the call that waits")
    assert producer.end() == 0
    assert job.wait() == 0
    assert text(runtime.base / "found") == "in/d/a"
    assert (runtime.base / "in" / "d" / "empty").is_dir()


def test_without_a_gate_the_command_starts_when_all_is_there(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f", committed="on_close")
    environment = {**os.environ, "SFIO_NODE_WITHOUT_GATE": "1"}
    job = consume(runtime, "cat in/f > result", gate(runtime, "f"), environment=environment)
    assert "SFIO_NODE_WITHOUT_GATE is set" in str(job.wait_for("warning")["message"])
    time.sleep(0.05)
    assert not (runtime.base / "began").exists()
    producer.commit("f", "text")
    assert job.wait() == 0
    assert text(runtime.base / "result") == "text"
    assert producer.end() == 0


def test_a_gate_in_a_gate(runtime_with_gate: Node) -> None:
    """A process can have one listener only: the inner job does without a gate, and is right all the same."""
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f", committed="on_close")
    (runtime.base / "open").mkdir()
    inner = runtime.run / "jobs" / "inner"
    inner.mkdir()
    entry = {**gate(runtime, "f"), "target": str(runtime.base / "open" / "f")}
    (inner / "job.json").write_text(json.dumps({"name": "inner", "gates": [entry]}))
    script = f"{runtime.binary} exec --job {inner} -- cat open/f > result"
    job = consume(runtime, script, gate(runtime, "f"))
    began(runtime)
    producer.commit("f", "text")
    assert job.wait() == 0
    assert text(runtime.base / "result") == "text"
    assert "seccomp listener already" in (inner / "events.jsonl").read_text()
    assert producer.end() == 0


def test_io_uring_is_refused(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f", committed="on_close")
    script = (
        "import ctypes, errno\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "parameters = ctypes.create_string_buffer(120)\n"
        "assert libc.syscall(425, 4, parameters) == -1\n"
        "print(errno.errorcode[ctypes.get_errno()])"
    )
    job = runtime.start("c", [sys.executable, "-ISc", script], gates=[gate(runtime, "f")], stdout=subprocess.PIPE)
    assert job.process.stdout is not None
    assert job.process.stdout.readline() == b"ENOSYS\n"
    producer.commit("f", "text")
    assert job.wait() == 0
    assert producer.end() == 0


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_calls_of_32_bits_wait_until_all_is_there(runtime_with_gate: Node) -> None:
    """int 0x80 from a program of 64 bits."""
    runtime = runtime_with_gate
    if os.uname().machine != "x86_64":
        pytest.skip("of x86 only")
    source = runtime.base / "call.c"
    source.write_text(
        "#include <sys/mman.h>\n#include <string.h>\n#include <stdio.h>\n"
        "int main(int c, char **v) { char *p = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);\n"
        'strcpy(p, v[1]); int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(5), "b"(p), "c"(0) : "memory");\n'
        'printf("%d\\n", r); return 0; }\n'
    )
    subprocess.run(["gcc", "-o", runtime.base / "call", source], check=True)
    producer = Producer(runtime, globs="f")
    job = runtime.start("c", [runtime.base / "call", runtime.base / "in" / "f"], gates=[gate(runtime, "f")],
                        stdout=subprocess.PIPE)  # fmt: skip
    wait_for(lambda: sleeps_in_call(job) or job.process.poll() is not None, "the call that waits")
    producer.tell("write", "f", "text")
    assert producer.end() == 0
    answer = int(job.process.communicate(timeout=TIMEOUT)[0])
    assert answer == 3 or answer == -38  # a kernel without calls of 32 bits


def test_a_gate_that_is_open_already(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f")
    producer.tell("write", "f", "text")
    assert producer.end() == 0
    job = consume(runtime, "cat in/f > result", gate(runtime, "f"))
    assert job.wait() == 0
    assert text(runtime.base / "result") == "text"


def test_what_an_earlier_attempt_left_is_replaced(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    (runtime.base / "in" / "d").mkdir()
    (runtime.base / "in" / "d" / "old").write_text("old")
    producer = Producer(runtime, globs="d", kind="directory", committed="on_close")
    producer.tell("mkdir", "d")
    producer.commit("d/new", "new")
    assert producer.end() == 0
    job = consume(runtime, "ls in/d > result", gate(runtime, "d", "directory"))
    assert job.wait() == 0
    assert text(runtime.base / "result") == "new"
