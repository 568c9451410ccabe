"""The reader net of sfio-node: a command that was never declared to read a stream does what it does with the file."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from lab.node import Job, Node, wait_for
from lab.node_links import pair
from lab.node_net import Growing, native, process_state, run, start


@cache
def data() -> bytes:
    """Some MB, more than a pipe holds."""
    return b"".join(b"%07d a line\n" % number for number in range(200_000))


@dataclass(frozen=True)
class Case:
    """The action of a script with the file ``f``; ``held``: the call for which it waits for the file."""

    name: str
    script: str
    held: str = ""
    stdin: bool = False
    shell: bool = False


_IMPORTS = (
    "import ctypes, fcntl, mmap, os, select, struct, sys, threading, time\nC = ctypes.CDLL(None, use_errno=True)\n"
)


def _python(name: str, script: str, held: str = "", stdin: bool = False) -> Case:
    return Case(name, _IMPORTS + script, held, stdin)


def _shell(name: str, script: str, held: str = "", stdin: bool = False) -> Case:
    return Case(name, script, held, stdin, shell=True)


#: Answered as a file does, while it is a stream.
STREAMED = [
    _python("tells where it is", "f = open('f', 'rb', 0)\nfor n in 1, 0, 999: f.read(n); print(f.tell())"),
    _python("goes where it is", "f = os.open('f', 0)\nos.read(f, 70)\nprint(os.lseek(f, 70, 0), os.read(f, 20))"),
    # One call may read less than it asks for.
    _python(
        "goes back",
        "f = open('f', 'rb', 0)\nwhile f.tell() < 999_999: f.read(999_999 - f.tell())\n"
        "print(f.seek(-99, 1), f.read(50), f.tell())",
    ),
    _python("reads twice", "f = open('f')\na = f.read()\nf.seek(0)\nprint(a == f.read(), len(a))"),
    _python("skips", "f = open('f', 'rb', 0)\nprint(f.seek(2_000_003), f.read(20), f.seek(500_000, 1), f.read(20))"),
    _python("goes to nowhere", "try: open('f', 'rb', 0).seek(-1)\nexcept OSError as error: print(error)"),
    _python("advises", "f = open('f', 'rb')\nos.posix_fadvise(f.fileno(), 0, 0, 2)\nprint(len(f.read()))"),
    _python("syncs", "f = open('f', 'rb')\nos.fsync(f.fileno())\nprint(len(f.read()))"),
    _python("asks for the pipe", "try: fcntl.fcntl(open('f'), 1032)\nexcept OSError as error: print(error)"),
    _python(
        "cannot be watched",
        "e = select.epoll()\ntry: e.register(0, 1)\nexcept PermissionError as error: print(error)\n"
        "print(len(sys.stdin.read()))",
        stdin=True,
    ),
    _python("does not wait", "f = os.open('f', os.O_NONBLOCK)\nwhile d := os.read(f, 1 << 20): os.write(1, d)"),
    _python("need not wait", "os.set_blocking(0, False)\nwhile d := os.read(0, 1 << 20): os.write(1, d)", stdin=True),
    _python(
        "need not wait, by ioctl",
        "fcntl.ioctl(0, 0x5421, struct.pack('i', 1))\nwhile d := os.read(0, 1 << 20): os.write(1, d)",
        stdin=True,
    ),
    _python(
        "shares its place",
        "f = os.open('f', 0)\ng = os.dup(f)\nos.read(f, 100)\n"
        "print(os.lseek(g, 0, 1), os.lseek(g, 7, 0), os.read(f, 20))",
    ),
    _python(
        "shares its place with a child",
        "f = os.open('f', 0)\nif os.fork() == 0: os.lseek(f, 1_999_000, 0); os._exit(0)\n"
        "os.wait()\nprint(os.lseek(f, 0, 1), os.read(f, 20))",
    ),
    _shell("leaves the rest to others", "{ head -n 1; wc -l; } < f"),
    _shell("reads a line, and leaves the rest", "{ read line; echo $line; read line; cat; } < f"),
    _shell("leaves the rest of its input", "head -n 3; tail -n +4", stdin=True),
    _shell("is looked at first", "test -r f && cat f"),
]

#: These wait for the file, and get it.
HELD = [
    _python("seeks from the end", "f = open('f', 'rb', 0)\nf.read(9)\nprint(f.seek(-30, 2), f.read())", "lseek"),
    _python(
        "reads at a place", "f = os.open('f', 0)\nos.read(f, 9)\nprint(os.pread(f, 9, 7), os.read(f, 9))", "pread64"
    ),
    _python("maps", "f = open('f')\nprint(mmap.mmap(f.fileno(), 9_999, prot=1)[9_000:])", "mmap"),
    _python("has two", "a = open('f')\nb = open('f')\nprint(a.read(99), b.read(99))", "openat"),
    _python("reads it again", "print(open('f').read(9))\nprint(len(open('f').read()))", "openat"),
    _python("asks for the size by path", "print(os.stat('f').st_size)", "newfstatat"),
    _python("sends it", "f = os.open('f', 0)\nos.read(f, 9)\nwhile os.sendfile(1, f, None, 1 << 20): pass", "sendfile"),
    _python("asks what is there", "print(struct.unpack('i', fcntl.ioctl(open('f'), 0x541B, b'0000')))", "ioctl"),
    _python("looks what is there", "print(select.select([0], [], [], 0)[0], len(sys.stdin.read()))", "pselect6", True),
    _python("polls", "p = select.poll()\np.register(0, 1)\nprint(p.poll(0), len(os.read(0, 9)))", "poll", True),
    _python("opens its input again", "print(open('/dev/stdin').read()[-9:], sys.stdin.read(9))", "openat", True),
    _python(
        "asks what its input is",
        "print(os.path.basename(os.path.realpath('/proc/self/fd/0')), len(sys.stdin.read()))",
        "newfstatat",
        True,
    ),
    _python(
        "all that it has of it",
        "f = os.open('f', os.O_CLOEXEC)\ng = os.dup(f)\nfcntl.fcntl(g, fcntl.F_SETFD, 0)\nos.dup2(f, 9)\n"
        "os.read(g, 50)\nprint(len(os.pread(f, 9, 0)), os.lseek(9, 5, 1), os.read(g, 20), os.read(f, 20))\n"
        "for n in f, g, 9: print(fcntl.fcntl(n, fcntl.F_GETFD), fcntl.fcntl(n, fcntl.F_GETFL) & 3)",
        "pread64",
    ),
    _python(
        "threads",
        "f = os.open('f', 0)\nout = [0] * 8\n"
        "def look(n): out[n] = os.pread(f, 9, n * 300_000)\n"
        "threads = [threading.Thread(target=look, args=(n,)) for n in range(8)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\nprint(out, os.read(f, 9))",
        "pread64",
    ),
    _python(
        "a child looks, and the parent, too",
        "f = os.open('f', 0)\nos.read(f, 50)\nif os.fork() == 0: os.lseek(f, -40, 2); os.read(f, 9); os._exit(0)\n"
        "os.wait()\nprint(os.lseek(f, 0, 1), os.read(f, 9))",
        "lseek",
    ),
    _shell("the next program reads on", "{ python3 -I -c 'import os; os.lseek(0, -99, 2)'; cat; } < f", "lseek"),
    _shell(
        "and the next in a group",
        "{ cat > /dev/null; python3 -I -c 'import os; os.lseek(0, -50, 2)'; wc -c; } < f",
        "lseek",
    ),
    _shell("by a descriptor", "exec 3< f; head -c 5 <&3; cat /proc/self/fd/3 | tail -n 1", "openat"),
]

#: What shares a pipe with one that has got the file, and reads it without a call that is told.
AGAIN = [
    # With a file, some programs look at its size instead, as `od -j` does.
    _python("goes beyond the end", "f = open('f', 'rb', 0)\nprint(f.seek(9_000_000), f.read(9), f.seek(7), f.read(9))"),
    _python(
        "a parent reads on",
        "f = os.open('f', 0)\nif os.fork() == 0: os.lseek(f, -40, 2); os._exit(0)\nos.wait()\nprint(os.read(f, 9))",
    ),
    _python(
        "a parent waits to read on",
        "f = os.open('f', 0)\nif os.fork() == 0: os.lseek(f, -40, 2); os._exit(0)\nos.wait()\n"
        "p = select.poll()\np.register(f, select.POLLIN)\np.poll()\nprint(os.read(f, 9))",
    ),
    _python("Linux AIO", "C.syscall(206, 1, ctypes.byref(ctypes.c_ulong(0)))\nprint(open('f').read(9))"),
]

#: The others show more of the same.
_SHORT = {
    "cannot be watched",
    "goes back",
    "goes beyond the end",
    "need not wait",
    "shares its place with a child",
    "leaves the rest to others",
    "seeks from the end",
    "has two",
    "polls",
    "opens its input again",
    "all that it has of it",
    "threads",
    "the next program reads on",
    "a parent reads on",
}


def _params(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.name, marks=[] if case.name in _SHORT else pytest.mark.long) for case in cases]


def _command(case: Case) -> list[str]:
    return ["bash", "-c", case.script] if case.shell else [sys.executable, "-ISc", case.script]


@pytest.mark.parametrize("case", _params([*STREAMED, *HELD]))
def test_it_is_as_with_the_file(case: Case, runtime: Node, tmp_path: Path) -> None:
    expected = native(_command(case), data(), tmp_path / "native", case.stdin)
    ran = run(runtime, _command(case), data(), case.stdin)
    assert (ran.code, ran.out) == expected, ran.said
    assert (ran.held, ran.reason) == (case.held, "exited")


@pytest.mark.parametrize("case", _params([case for case in (*STREAMED, *HELD) if not case.stdin]))
def test_it_is_as_with_a_file_of_another_host(case: Case, tmp_path: Path) -> None:
    """Where the file itself would be read from another place, the command waits for a copy."""
    expected = native(_command(case), data(), tmp_path / "native")
    with pair(tmp_path) as nodes:
        ran = run(nodes.two, _command(case), data(), source=nodes.one)
        assert (ran.code, ran.out) == expected, ran.said
        assert ran.reason == "exited"
        assert ran.held == case.held or (case in STREAMED and ran.held in ("", "lseek"))


@pytest.mark.parametrize("case", _params(AGAIN))
def test_it_has_to_start_again(case: Case, runtime: Node) -> None:
    ran = run(runtime, _command(case), data(), case.stdin)
    assert (ran.code, ran.reason, ran.job.exit()["input"]) == (75, "unstreamable", "in"), ran
    assert not ran.job.processes()


#: What a script makes of a pipe up to some place, and the call that waits for the file after that.
PIPES = {
    "the end": ("try: os.lseek(f, -9, 2)\nexcept OSError as error: print(error.errno)", "29\n", "lseek"),
    "another place": ("try: os.pread(f, 9, 9)\nexcept OSError as error: print(error.errno)", "29\n", "pread64"),
    "the file in memory": (
        "try: mmap.mmap(f, 9, prot=1)\nexcept OSError as error: print(error.errno)\nexcept ValueError: print('size')",
        f"{errno.ENODEV}\n",
        "mmap",
    ),
    "where it is": ("try: os.lseek(f, 0, 1)\nexcept OSError as error: print(error.errno)", "29\n", ""),
}


@pytest.mark.parametrize("asks", PIPES)
@pytest.mark.parametrize("stdin", [False, True])
def test_up_to_some_place_it_is_a_pipe(asks: str, stdin: bool, runtime: Node, tmp_path: Path) -> None:
    script, as_pipe, held = PIPES[asks]
    opened = _IMPORTS + ("f = 0\n" if stdin else "f = os.open('f', 0)\n")
    # Not to its end: there the file is whole, and nothing waits.
    rest = f"n = 1_000_000\nwhile n: n -= len(os.read(f, min(n, 1 << 16)))\n{script}\nprint(len(os.read(f, 9)))\n"
    command = [sys.executable, "-ISc", f"{opened}os.read(f, 9)\n{script}\n{rest}"]
    ran = run(runtime, command, data(), stdin, pipe=1_000_000)
    natively = native([sys.executable, "-ISc", f"{opened}os.read(f, 9)\n{rest}"], data(), tmp_path / "native", stdin)
    assert (ran.code, ran.out.decode()) == (0, as_pipe + natively[1].decode()), ran.said
    assert ran.held == held


_SEEKS = "import os; f = os.open('f', 0); os.read(f, 9); print(os.lseek(f, -9, 2), os.read(f, 9))"


def _held(runtime: Node, script: str = _SEEKS, **options: object) -> tuple[Growing, Job]:
    """A command that waits for its file."""
    growing = Growing(runtime, data())
    job = start(runtime, [sys.executable, "-ISc", script], growing, **options)  # type: ignore[arg-type]
    job.wait_for("held")
    return growing, job


def test_the_place_and_the_call_are_told(runtime: Node) -> None:
    growing, job = _held(runtime)
    (held,) = job.named("held")
    assert (held["name"], held["call"], held["bytes"]) == ("in", "lseek", 9)
    growing.finish()
    assert (job.wait(), growing.producer.wait()) == (0, 0)
    (told,) = job.named("stream")
    assert told["bytes"] == 9
    assert len(job.named("held")) == 1


#: Reads; waits for the file; has a child that has got it.
_STATES = {
    "streaming": "import os, time; f = os.open('f', 0); os.read(f, 9); print('here', flush=True); time.sleep(60)",
    "held": f"print('here', flush=True); {_SEEKS}",
    "split": "import os, time; f = os.open('f', 0)\nif os.fork() == 0: os.lseek(f, -9, 2); os._exit(0)\n"
    "os.wait(); print('here', flush=True); time.sleep(60)",
}


def _kills() -> list[object]:
    killed = ["producer", "exec", "command", "cancelled", "serve", "driver"]
    cases = [(state, who) for state in _STATES for who in killed if (state, who) != ("split", "producer")]
    short = [("held", "producer"), ("held", "exec"), ("split", "exec"), ("held", "cancelled")]
    return [pytest.param(*case, marks=[] if case in short else pytest.mark.long) for case in cases]


@pytest.mark.parametrize(("state", "killed"), _kills())
def test_nothing_hangs_and_nothing_is_left(state: str, killed: str, runtime: Node) -> None:
    growing = Growing(runtime, data())
    job = start(runtime, [sys.executable, "-ISc", _STATES[state]], growing)
    if state == "split":
        growing.finish()
    printed = runtime.base / "printed"
    wait_for(lambda: printed.exists() and printed.read_bytes(), "the command")
    if state == "held":
        job.wait_for("held")
    match killed:
        case "producer":
            growing.producer.process.kill()
        case "exec":
            job.process.kill()
        case "command":
            os.kill(job.command_pid(), signal.SIGKILL)
        case "cancelled":
            job.cancel()
        case "serve":
            runtime.server.kill()
            runtime.server.wait()
        case "driver":
            assert runtime.server.stdin is not None
            runtime.server.stdin.close()
    assert job.wait() != 0
    wait_for(lambda: not job.processes(), "the end of its processes")
    if killed in ("serve", "driver"):
        # The last job removes the run directory.
        growing.producer.wait()
    else:
        growing.producer.process.kill()
    if killed in ("producer", "cancelled"):
        assert job.exit()["reason"] == killed


def test_what_was_read_of_a_file_that_is_written_again(runtime: Node) -> None:
    """The bytes that were read before the file took their place are compared with it."""
    growing, job = _held(runtime, f"{_SEEKS}; import time; time.sleep(9)")
    with growing.path.open("r+b", 0) as file:
        file.write(b"x")
    growing.finish()
    assert (job.wait(), job.exit()["reason"]) == (75, "rewritten")


@pytest.mark.parametrize("stdin", [pytest.param(False, marks=pytest.mark.long), True])
def test_without_seccomp_nothing_streams(stdin: bool, runtime: Node) -> None:
    growing = Growing(runtime, data())
    environment = {**os.environ, "SFIO_NODE_WITHOUT_GATE": "1"}
    read = "os.fstat(0).st_size, os.read(0, 9)" if stdin else "os.stat('f').st_size, len(open('f').read())"
    command = [sys.executable, "-ISc", f"import os; print({read})"]
    job = start(runtime, command, growing, stdin, environment=environment)
    assert "the command starts when all that it reads is committed" in str(job.wait_for("warning")["message"])
    assert not (runtime.base / "printed").read_bytes()
    growing.finish()
    assert job.wait() == 0
    expected = f"{len(data())} {data()[:9]!r}" if stdin else f"{len(data())} {len(data())}"
    assert (runtime.base / "printed").read_text().strip() == expected
    assert not job.named("held")


def test_a_call_that_waits_is_not_interrupted(runtime: Node) -> None:
    """`lseek` never returns for a signal: no program expects that."""
    script = (
        "import ctypes, os, signal; signal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.siginterrupt(signal.SIGALRM, True); signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)\n"
        "f = os.open('f', 0); print(ctypes.CDLL(None).lseek(f, -9, 2)); signal.setitimer(signal.ITIMER_REAL, 0)"
    )
    growing, job = _held(runtime, script)
    time.sleep(0.1)
    growing.finish()
    assert (job.wait(), (runtime.base / "printed").read_text().strip()) == (0, str(len(data()) - 9))


@pytest.mark.long
def test_calls_of_32_bits(runtime: Node) -> None:
    """The numbers of such calls are others, so that their meaning is unknown."""
    source, program = runtime.base / "foreign.c", runtime.base / "foreign"
    source.write_text('int main(void) { long pid; asm volatile("int $0x80" : "=a"(pid) : "a"(20)); return pid <= 0; }')
    if shutil.which("gcc") is None or os.uname().machine != "x86_64":
        pytest.skip("no gcc, or no calls of 32 bits")
    subprocess.run(["gcc", "-o", program, source], check=True)
    if subprocess.run([program]).returncode != 0:
        pytest.skip("this kernel has no calls of 32 bits")
    ran = run(runtime, [str(program)], data())
    assert (ran.code, ran.reason) == (75, "unstreamable")


def test_two_streams(runtime: Node) -> None:
    """Each waits for its own file."""
    first, second = Growing(runtime, data(), "p"), Growing(runtime, data()[::-1], "q")
    place = runtime.base / "in"
    inputs = [first.input(place / "f", "one"), second.input(place / "g", "other")]
    job = runtime.shell("c", f"cd {place}; cmp f g; tail -c 9 g; tail -c 9 f", inputs=inputs)
    job.wait_for("held")
    second.finish()
    first.finish()
    assert job.wait() == 0
    assert {str(event["name"]) for event in job.named("held")} == {"one", "other"}


def test_who_has_closed_the_stream_costs_nothing(runtime: Node) -> None:
    """A command that works on when it has read its input: a look at the FIFO must not be the reason for the next."""
    growing = Growing(runtime, data())
    go = runtime.base / "go"
    job = start(runtime, ["sh", "-c", f"cat f; echo; until [ -e {go} ]; do sleep 0.01; done"], growing)
    growing.finish()
    printed = runtime.base / "printed"
    wait_for(lambda: printed.exists() and printed.read_bytes() == data() + b"\n", what="all to be read")
    states: list[str] = []

    def rests() -> bool:
        states.append(process_state(job.process.pid))
        return states[-20:] == ["S"] * 20

    wait_for(rests, what="the feeder to rest")
    go.touch()
    assert job.wait() == 0


_OPERATIONS = """
import mmap, os, random, sys
seed, size = int(sys.argv[1]), int(sys.argv[2])
random = random.Random(seed)
opened = [os.open("f", os.O_RDONLY)]

def one(place):
    f = random.choice(opened)
    what = random.choices(WHAT, WEIGHTS)[0]
    if what == "read": return os.read(f, 1), drain(f, random.choice([9, 5_000, 300_000]))
    if what == "tell": return os.lseek(f, 0, os.SEEK_CUR)
    if what == "set": return os.lseek(f, random.randrange(size + 9), os.SEEK_SET)
    if what == "here": return os.lseek(f, random.randrange(-2_000, 40_000), os.SEEK_CUR)
    if what == "end": return os.lseek(f, -random.randrange(size), os.SEEK_END)
    if what == "pread": return os.pread(f, 9, random.randrange(size))
    if what == "map": return mmap.mmap(f, 9_999, prot=1)[-9:]
    if what == "dup": opened.append(os.dup(f))
    if what == "close" and len(opened) > 1: os.close(opened.pop())
    if what == "fork":
        child = os.fork()
        if child == 0:
            for _ in range(3): say(one(place))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        # What it has drawn is not known here.
        random.seed(place)

def drain(f, count):
    # As a file gives it: all at once.
    found = b""
    while len(found) < count and (piece := os.read(f, count - len(found))): found += piece
    return len(found), found[-9:]

def say(what): print(what, flush=True)

WHAT = ["read", "tell", "set", "here", "end", "pread", "map", "dup", "close", "fork"]
WEIGHTS = [20, 5, 5, 5, 1, 1, 1, 3, 3, 2]
for place in range(40):
    try: say(one(place))
    except OSError as error: say(error)
"""


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] if seed else []) for seed in range(40)])
def test_whatever_it_does(seed: int, runtime: Node, tmp_path: Path) -> None:
    """Except for a process that reads on from what another process has got as a file, or that goes beyond the end."""
    command = [sys.executable, "-ISc", _OPERATIONS, str(seed), str(len(data()))]
    expected = native(command, data(), tmp_path / "native")
    ran = run(runtime, command, data())
    if ran.reason == "unstreamable":
        assert ran.held or "it has gone to byte" in ran.job.exit()["message"]
    else:
        assert (ran.code, ran.out, ran.reason) == (*expected, "exited"), ran.said
