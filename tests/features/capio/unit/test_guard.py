"""The guard in front of CAPIO's library: what ends a program, and what is reported of one that goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from lab.installed_capio import SHARED
from streamflow_io.features.capio.runtime.installation import Guard, Guarded
from streamflow_io.features.capio.runtime.reports import Reports, parse_reports
from tests.features.capio.stand_in.support import install


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("capio") / "home") / "lib" / "libcapio_posix.so"


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return Guard.build(tmp_path_factory.mktemp("guard"))


class Programs:
    """Runs programs with the guard and the stand-in for CAPIO's library; what a server would make is there.

    `a-1/out.txt` is an input, `b-2` the directory of the program, for which `output` stands in the file system.
    """

    def __init__(self, guard: Guard, library: Path, place: Path) -> None:
        self.guard, self.place = guard, place
        self.directory = place / "d"
        self.own, self.input = self.directory / "b-2", self.directory / "a-1" / "out.txt"
        self.output = place / "output"
        for path in (self.own, self.output, Path(f"{self.directory}.held")):
            path.mkdir(parents=True)
        Path(f"{self.directory}.held", "a-1|out.txt").write_text("line 1\nline 2\n")
        self.name = f"sfio-{os.getpid()}-{os.urandom(4).hex()}"
        (SHARED / self.name).touch()
        (SHARED / f"{self.name}_number").write_text("0")
        self.libraries = f"{guard.library}:{library}"

    def run(self, script: str) -> Reports:
        """Run Python, and return what the guard has reported."""
        reports = self.place / "reports"
        guarded = Guarded(reports, self.own, self.output, (PurePosixPath(self.input),))
        environment = {
            **self.guard.environment(guarded),
            "CAPIO_DIR": str(self.directory),
            "CAPIO_WORKFLOW_NAME": self.name,
            "CAPIO_APP_NAME": "b",
            "LD_PRELOAD": self.libraries,
            "HOME": str(self.output),
            "IN": str(self.input),
        }
        subprocess.run(
            [sys.executable, "-ISc", f"import os, sys\n{script}"],
            cwd=self.own,
            env=environment,
            check=False,
            timeout=60,
            capture_output=True,
        )
        return parse_reports(reports.read_text())

    def content(self, text: str) -> object:
        (path := self.place / "content").write_text(text)
        return self.guard.content(path)


@pytest.fixture
def programs(guard: Guard, library: Path, tmp_path: Path) -> Iterator[Programs]:
    made = Programs(guard, library, tmp_path)
    yield made
    for entry in SHARED.glob(f"{made.name}*"):
        entry.unlink()


UNFIT = {
    "appends in several openings": (
        "for i in range(5):\n    with open('out.txt', 'a') as out: print(i, file=out)",
        "it opens b-2/out.txt a second time",
    ),
    "writes its file again": (
        "open('out.txt', 'w').write('long ' * 9)\nopen('out.txt', 'w').write('short')",
        "it opens b-2/out.txt a second time",
    ),
    "seeks": (
        "with open('out.txt', 'w') as out:\n    out.write('line 1')\n    out.seek(0)\n    out.write('L')",
        "it seeks in b-2/out.txt, which it writes",
    ),
    "asks for the size of its output": (
        "open('out.txt', 'w').write('line 1')\nos.stat('out.txt')",
        "it asks for the type or size of b-2/out.txt, which it has written",
    ),
    "renames": (
        "open('new.txt', 'w').write('line 1')\nos.rename('new.txt', 'out.txt')",
        "it renames or links b-2/new.txt",
    ),
    "uses two paths": (
        "open('out.txt', 'w').write('line 1')\nopen(os.environ['HOME'] + '/out.txt', 'a').write('line 2')",
        "it uses b-2/out.txt by two paths",
    ),
    "writes from several threads": (
        "import threading\n"
        "out = open('out.txt', 'w')\n"
        "def say(what): print(what, file=out, flush=True)\n"
        "for i in range(3):\n"
        "    t = threading.Thread(target=say, args=[i])\n"
        "    t.start()\n"
        "    t.join()",
        "it uses one opening of b-2/out.txt in several threads",
    ),
    "writes from a forked child": (
        # The stand-in sees no fork: the guard sees the child when the child writes.
        "out = open('out.txt', 'w', buffering=1)\n"
        "print(1, file=out)\n"
        "if os.fork() == 0:\n"
        "    print(2, file=out)\n"
        "    os._exit(0)\n"
        "os.wait()[1] and sys.exit(1)",
        "it uses one opening of b-2/out.txt in several threads",
    ),
    "asks for the type of its input": (
        "os.lstat(os.environ['IN'])",
        "it asks for the type or size of its input a-1/out.txt",
    ),
    "asks for the size of its input": (
        "os.path.getsize(os.environ['IN'])",
        "it asks for the type or size of its input a-1/out.txt",
    ),
    "asks whether it may write its input": (
        "os.access(os.environ['IN'], os.W_OK)",
        "it asks whether it may write or execute its input a-1/out.txt",
    ),
    "writes its input": (
        "open(os.environ['IN'], 'r+')",
        "it writes into its input a-1/out.txt",
    ),
    "asks for what it has open by path": (
        "file = os.open(os.environ['IN'], os.O_RDONLY)\nos.stat(f'/dev/fd/{file}')",
        "it uses /dev/fd/3",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_capio_cannot_do_ends_the_program(programs: Programs, what: str) -> None:
    script, why = UNFIT[what]
    assert programs.run(f"{script}\nopen(os.environ['HOME'] + '/went-on', 'w')").unfit == why
    assert not (programs.output / "went-on").exists()


def test_what_is_written_is_reported_with_its_mode(programs: Programs) -> None:
    script = "os.umask(0o027)\nos.write(os.open('out.txt', os.O_WRONLY | os.O_CREAT, 0o777), b'line 1')"
    reports = programs.run(script)
    assert (reports.unfit, reports.modes) == (None, {"b-2/out.txt": 0o750})
    assert reports.contents == {"b-2/out.txt": programs.content("line 1")}


@pytest.mark.parametrize(("reading", "is_whole"), [("while os.read(file, 5): pass", True), ("os.read(file, 5)", False)])
def test_what_is_read_is_reported(programs: Programs, reading: str, is_whole: bool) -> None:
    (read,) = programs.run(f"file = os.open(os.environ['IN'], os.O_RDONLY)\n{reading}").read
    assert (read.path, read.content, read.at_end) == (
        "a-1/out.txt",
        programs.content("line 1\nline 2\n" if is_whole else "line "),
        is_whole,
    )


@pytest.mark.parametrize("call", ["os.pread(file, 9, 0)", "os.lseek(file, 0, 2)"])
def test_a_reader_has_a_fifo(programs: Programs, call: str) -> None:
    """A call that is not possible with a FIFO fails, as with the embedded node runtime."""
    script = f"""
file = os.open(os.environ['IN'], os.O_RDONLY)
assert os.fstat(file).st_mode & 0o170000 == 0o010000
try:
    {call}
except OSError as error:
    open(os.environ['HOME'] + '/' + error.strerror, 'w')
"""
    assert programs.run(script).unfit is None
    assert [path.name for path in programs.output.iterdir()] == ["Illegal seek"]
