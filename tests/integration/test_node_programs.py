"""`sfio-node programs`: what tells a program from others, with the libraries that would be loaded with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.node import built, wait_for
from lab.processes import find_processes
from streamflow_io.jobs.programs import stamps_here


def loads(*words: str | Path, libraries: Path | None = None, path: str = "/usr/bin:/bin") -> list[str | None]:
    """The digests of the libraries that some programs load; None is returned if there is no such program."""
    environment = {"PATH": path} | ({} if libraries is None else {"LD_LIBRARY_PATH": str(libraries)})
    command = [str(built()), "programs", "--", *map(str, words)]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [None if line == "-" else json.loads(line)["loads"] for line in ran.stdout.splitlines()]


def libraries_of(program: str) -> dict[str, Path]:
    """The libraries, by name, as the dynamic loader itself lists them."""
    said = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=False).stdout
    found = [line.split() for line in said.splitlines() if "=>" in line]
    if not found:
        pytest.skip("ldd does not say what is loaded")
    return {words[0]: Path(words[2]) for words in found}


def test_a_program_whose_library_is_another_one_is_another_one(tmp_path: Path) -> None:
    program = shutil.which("ls", path="/usr/bin:/bin")
    assert program is not None
    [before] = loads("ls")
    assert before
    assert loads("ls", program, "no.such") == [before, before, None]
    found, refused = [before], set[str | None]()
    for name, library in libraries_of(program).items():
        shutil.copy(library, tmp_path / name)
        # Also one that others need.
        found += loads("ls", libraries=tmp_path)
        os.utime(tmp_path / name, ns=(1, 1))
        found += loads("ls", libraries=tmp_path)
        (tmp_path / name).write_text("no library")
        # The loader refuses to load the program.
        refused |= {*loads("ls", libraries=tmp_path)}
        (tmp_path / name).unlink()
    assert len({*found}) == len(found)
    assert len(refused) == 1
    assert refused.isdisjoint(found)


def test_a_script_is_known_by_its_interpreter(tmp_path: Path) -> None:
    scripts = {"sh": "#!/bin/sh", "env": "#!/usr/bin/env sh", "python": f"#!{sys.executable}", "none": "echo"}
    for name, line in scripts.items():
        (tmp_path / name).write_text(f"{line}\n")
    found = dict(zip(scripts, loads(*(tmp_path / name for name in scripts)), strict=True))
    assert found["none"] == ""
    assert len({*found.values()}) == len(scripts)


def test_the_driver_asks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFIO_NODE", str(built()))
    (tmp_path / "data").write_text("data")
    words = ["sh", str(tmp_path / "data"), "-", "--help", "no.such", *(f"none{number}" for number in range(500))]
    found = stamps_here(words)
    stamp = found["sh"]
    assert stamp is not None
    assert len(stamp[2]) == 16
    assert found[str(tmp_path / "data")] == (4, (tmp_path / "data").stat().st_mtime_ns, "")
    assert {word for word in words if found[word] is None} == {*words[2:]}


def program_with(loader: Path) -> bytes:
    """An ELF file that names its loader, and has nothing else; elf(5)."""
    name = os.fsencode(loader) + b"\0"
    identity = b"\x7fELF" + bytes([2, 1 if sys.byteorder == "little" else 2, 1]) + bytes(9)
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    header = struct.pack("=HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("=IIQQQQQQ", 3, 4, 120, 0, 0, len(name), len(name), 1)
    return identity + header + segment + name


def made(path: Path, content: str | bytes, mode: int = 0o755) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_library_beside_a_program_is_found_also_through_a_link(tmp_path: Path) -> None:
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    (tmp_path / "a.c").write_text("int a(void) { return 0; }")
    (tmp_path / "main.c").write_text("int a(void); int main(void) { return a(); }")
    library, program, link = tmp_path / "lib" / "liba.so", tmp_path / "bin" / "main", tmp_path / "link"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "a.c"], check=True)
    options = [f"-L{library.parent}", "-la", "-Wl,-rpath,$ORIGIN/../lib"]
    subprocess.run(["gcc", "-o", program, tmp_path / "main.c", *options], check=True)
    link.symlink_to(program)
    found = []
    for changed in (1, 2):
        os.utime(library, ns=(changed, changed))
        found.append(loads(program, link))
        assert found[-1][0] == found[-1][1]
    assert found[0] != found[1]


def test_no_data_make_a_program_run(tmp_path: Path) -> None:
    """A file may name any program as its loader, and a loader maps the file."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    ran = tmp_path / "ran"
    script = f"#!/bin/sh\ntouch {ran}\n"
    loader, of_others = made(tmp_path / "loader", script), made(tmp_path / "open" / "loader", script)
    elf = program_with(loader)
    loads(
        made(tmp_path / "data", elf, 0o644),
        made(tmp_path / "open" / "program", elf),
        made(tmp_path / "program", program_with(of_others)),
        made(tmp_path / "script", f"#!{tmp_path}/open/program\n"),
        made(tmp_path / "by env", f"#!/usr/bin/env {tmp_path}/open/program\n"),
    )
    assert not ran.exists()
    loads(made(tmp_path / "own", elf))
    assert ran.exists()


def test_a_program_that_a_shell_would_run_has_its_libraries_whoever_has_installed_it(tmp_path: Path) -> None:
    """Here another user could replace the program, as one of a shared installation."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    ran = tmp_path / "ran"
    made(tmp_path / "open" / "tool", program_with(made(tmp_path / "open" / "loader", f"#!/bin/sh\ntouch {ran}\n")))
    made(tmp_path / "open" / "script", f"#!{tmp_path}/open/tool\n")
    for name in ("tool", "script"):
        loads(name, path=f"{tmp_path}/open:/usr/bin:/bin")
        ran.unlink()


@pytest.mark.parametrize("answer", ["exec yes", "sleep 600 & wait", "exec >&-; sleep 600"])
def test_a_loader_without_an_end_is_not_waited_for(answer: str, tmp_path: Path) -> None:
    loader = made(tmp_path / "loader", f"#!/bin/sh\n{answer}\n")
    path = f"/usr/bin:/bin:{tmp_path}"
    began = time.monotonic()
    assert len(loads(made(tmp_path / "program", program_with(loader)), path=path)) == 1
    assert time.monotonic() - began < 40
    own_path = re.compile(re.escape(os.fsencode(f"PATH={path}")))
    # The processes end soon after the kill, but not before the kill returns.
    wait_for(lambda: not find_processes("environ", own_path), "the end of all that the loader has started")
