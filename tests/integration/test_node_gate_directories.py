"""Programs that look at a directory before they list it: at the gate they find one state of it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from lab.node import TIMEOUT, Node, wait_for
from tests.integration.test_node_gate import Producer, consume, gate, runtime_with_gate, sleeps_in_call, text
from tests.integration.test_node_limit import state

__all__ = ["runtime_with_gate"]

#: Prints what is in directories; what each call says of them before they are listed has to be so afterwards.
COMPARE = """
import os
def found(where):
    found = [os.stat(where), os.stat(where) if isinstance(where, int) else os.lstat(where)]
    return [(s.st_mode, s.st_nlink, s.st_size, s.st_blocks, s.st_mtime_ns, s.st_ctime_ns) for s in found]
for where in ("in/d", "in/d/late"):
    before, fd = found(where), os.open(where, os.O_RDONLY)
    before += found(fd)
    print(where, sorted(entry.name for entry in os.scandir(fd)))
    after = found(where) + found(fd)
    assert before == after, (where, before, after)
"""
COPYTREE = """
import os, shutil
shutil.copytree("in/d", "copy", symlinks=True)
for top, directories, files in sorted(os.walk("copy")):
    print(top, sorted(files), sorted(directories), os.environ["TIME"] == "-" or os.stat(top).st_mtime_ns)
"""
SCANDIR = """
import os
for top in "in/d", "in/d/late":
    for entry in sorted(os.scandir(top), key=lambda entry: entry.name):
        found = entry.stat(follow_symlinks=False)
        print(entry.name, entry.is_dir(), entry.is_symlink(), found.st_mode)
"""
_STAT = "stat -c '%h %s %b %y %z %f' in/d in/d/late"
_COPY = """find copy ! -type l -printf "%P %y %m $TIME\\n" | sort"""
_PYTHON = f"{shlex.quote(sys.executable)} -ISc "
#: $TIME and $LINKS are formats of `find`: what a directory has of them is what its source has, or `-`.
PROGRAMS = {
    "tar": 'if [ $TIME = - ]; then set -- --mtime=@1; fi; tar --sort=name "$@" -cf all.tar -C in d; cat all.tar',
    "tar of names": "tar -cf all.tar in/d/a in/d/late; tar -tf all.tar | sort",
    "cp -a": f"cp -a in/d copy; {_COPY}",
    "rsync -a": f"rsync -aH in/d/ copy; {_COPY}",
    "find -newer": "find in/d -type f -newer in/d/a | sort; [ $TIME = - ] || find in/d -type f -newer in/d/late",
    "find -printf": """find in/d -type d -printf "%P $LINKS $TIME\\n" | sort""",
    "du": "du -a --apparent-size in/d | sort",
    "zip -r": "zip -qrX all.zip in/d; unzip -Z1 all.zip | sort",
    "git hash-object": "find in/d -type f | sort | git hash-object --stdin-paths",
    "ls -lR": "ls -lR in/d | awk '{ print $1, $5, $9 }'",
    "stat": f"{_STAT} > before; ls in/d; {_STAT} | cmp - before",
    "test -d": "test -d in/d; test -d in/d/late; cat in/d/a",
    "os.stat": _PYTHON + shlex.quote(COMPARE),
    "scandir": _PYTHON + shlex.quote(SCANDIR),
    "copytree": _PYTHON + shlex.quote(COPYTREE),
}

#: Programs that look at each entry, or copy it, in each of the ways that there are.
ONE_BY_ONE = ("tar", "cp -a", "find -printf", "ls -lR", "stat", "os.stat", "scandir", "copytree")


@pytest.mark.parametrize(
    ("program", "mode"),
    [(program, "update") for program in PROGRAMS] + [(program, "no_update") for program in ONE_BY_ONE],
)
def test_programs_find_one_state_of_a_directory(runtime_with_gate: Node, program: str, mode: str) -> None:
    runtime = runtime_with_gate
    script = PROGRAMS[program]
    if (needed := script.split()[0]) in ("rsync", "zip") and shutil.which(needed) is None:
        pytest.skip(f"{needed} is not installed")
    of_source = ("%T@", "%n %s") if mode == "update" else ("-", "-")
    environment = {**os.environ, **dict(zip(("TIME", "LINKS"), of_source, strict=True))}
    producer = Producer(runtime, globs="d", kind="directory", committed="on_close")
    job = runtime.start(
        "c", ["sh", "-ec", script], wrapper=["env", "-C", str(runtime.base)], environment=environment,
        gates=[gate(runtime, "d", "directory", mode)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: sleeps_in_call(job), "a look at what is not there")
    source = runtime.base / "out" / "d"
    producer.tell("mkdir", "d")
    producer.commit("d/a", "first")
    producer.tell("mkdir", "d/late/below")
    producer.commit("d/late/below/b", "second")
    (source / "empty").mkdir(mode=0o750)
    (source / "link").symlink_to("a")
    (source / "to-directory").symlink_to("late")
    os.utime(source / "link", (1_000_000_010, 1_000_000_010), follow_symlinks=False)
    # A new link changes the times of its file, so that this one is not looked at while it is delivered. In the mode
    # `update` a program may read `a` by now, but goes into no directory.
    if mode == "update":
        (source / "late" / "hard").hardlink_to(source / "late" / "below" / "b")
    for number, path in enumerate((source / "late" / "below", source / "late", source / "empty", source)):
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    assert producer.end() == 0
    out, errors = job.process.communicate(timeout=TIMEOUT)
    assert (job.process.returncode, errors) == (0, b"")
    natively = runtime.base / "natively"
    natively.mkdir()
    (natively / "in").symlink_to("../out")
    assert out == subprocess.check_output(["sh", "-ec", script], cwd=natively, env=environment)


def test_the_way_to_a_file_does_not_wait_for_its_directory(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="d", kind="directory", committed="on_close")
    script = """
import os, sys
assert os.access(sys.argv[1], os.F_OK)
try: os.readlink(sys.argv[1])
except OSError as error: print(error.strerror)
os.chdir(sys.argv[1])
print(open("sub/a").read())
os.chdir("sub")
print(open("../sub/a").read(), open(os.path.join(sys.argv[1], "sub/a")).read())
"""
    job = runtime.python("c", script, runtime.base / "in" / "d", gates=[gate(runtime, "d", "directory")],
                         stdout=subprocess.PIPE)  # fmt: skip
    producer.tell("mkdir", "d/sub")
    producer.commit("d/sub/a", "text")
    assert job.process.stdout is not None
    assert [job.process.stdout.readline() for _ in range(3)] == [b"Invalid argument\n", b"text\n", b"text text\n"]
    assert producer.job.process.poll() is None
    assert producer.end() == 0
    assert job.process.communicate(timeout=TIMEOUT)[0] == b""
    assert job.wait() == 0


@pytest.mark.parametrize("where", ["in/d/sub", "in/d sub"])
def test_who_goes_into_a_directory_waits_for_it(runtime_with_gate: Node, where: str) -> None:
    """At once, or from the directory around it."""
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="d", kind="directory", committed="on_close")
    script = "import os, sys\nfor where in sys.argv[1:]: os.chdir(where)\nprint(open('a').read())"
    job = runtime.python(
        "c", script, *where.split(), wrapper=["env", "-C", str(runtime.base)],
        gates=[gate(runtime, "d", "directory")], stdout=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: sleeps_in_call(job), "a look at what is not there")
    producer.tell("mkdir", "d/sub")
    producer.commit("d/sub/a", "text")
    assert job.process.stdout is not None
    assert job.process.stdout.readline() == b"text\n"
    assert producer.end() == 0
    assert job.process.communicate(timeout=TIMEOUT)[0] == b""
    assert job.wait() == 0


def test_a_directory_with_a_file_at_the_gate_is_one_state(runtime_with_gate: Node) -> None:
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="f", committed="on_close")
    entry = gate(runtime, "f")
    job = consume(runtime, "tar -cf all.tar in; echo $? > code; tar -tf all.tar > listing", entry)
    wait_for(lambda: sleeps_in_call(job), "the call that waits")
    producer.commit("f", "text")
    assert job.wait() == 0
    assert text(runtime.base / "code") == "0"
    assert text(runtime.base / "listing").split() == ["in/", "in/f"]
    assert producer.end() == 0


def test_a_listing_that_a_signal_interrupts_loses_no_entry(runtime_with_gate: Node) -> None:
    """The kernel repeats the call, and the first one waits no more."""
    runtime = runtime_with_gate
    producer = Producer(runtime, globs="d", kind="directory", committed="on_close")
    script = "import os, sys\nfor entry in os.scandir(sys.argv[1]): print(entry.name, flush=True)"
    listing = runtime.base / "listing"
    with listing.open("wb") as file:
        job = runtime.python(
            "c", script, runtime.base / "in" / "d",
            gates=[gate(runtime, "d", "directory", "no_update")], stdout=file.fileno(),
        )  # fmt: skip
    producer.tell("mkdir", "d")
    for name in "abc":
        wait_for(lambda: sleeps_in_call(job), "the listing")
        os.kill(job.command_pid(), signal.SIGSTOP)
        wait_for(lambda: state(job.command_pid()) == "T", "the stop")
        os.kill(job.command_pid(), signal.SIGCONT)
        wait_for(lambda: sleeps_in_call(job), "the call that is repeated")
        producer.commit(f"d/{name}", "text")
    assert producer.end() == 0
    assert job.wait() == 0
    assert sorted(listing.read_text().split()) == ["a", "b", "c"]
