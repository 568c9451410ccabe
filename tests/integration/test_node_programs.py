"""`sfio-node programs`: what tells a program from others, with the libraries that would be loaded with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.node import built
from streamflow_io.jobs.programs import stamps_here


def loads(*words: str | Path, libraries: Path | None = None) -> list[str | None]:
    """The digests of the libraries that some programs load; None is returned if there is no such program."""
    environment = {"PATH": "/usr/bin:/bin"} | ({} if libraries is None else {"LD_LIBRARY_PATH": str(libraries)})
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
