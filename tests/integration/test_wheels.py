"""Wheels that are published: built for both architectures, installed where nothing else is."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.pictures import write_example

REPOSITORY = Path(__file__).parents[2]
#: `e_machine` of ELF.
MACHINES = {"x86_64": 62, "aarch64": 183}
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
_INTERPRETER = 3  # the type of a segment that names a dynamic linker

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By architecture, as far as they can be built here."""
    directory = tmp_path_factory.mktemp("wheels")
    for architecture in MACHINES:
        command = ["scripts/wheels.sh", sys.prefix, str(directory), architecture]
        built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if built.returncode:
            print(built.stderr)
    return {name: wheel for name in MACHINES for wheel in directory.glob(f"*_{name}.whl")}


def wheel_of(wheels: dict[str, Path], architecture: str) -> Path:
    if architecture not in wheels:
        pytest.skip(f"a wheel for {architecture} cannot be built here: rustup, or a C compiler, is missing")
    return wheels[architecture]


def interpreter(version: str) -> str | None:
    """A Python of a version: also one of pyenv that is not chosen."""
    places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    return str(places[-1]) if places else shutil.which(f"python{version}")


@pytest.mark.parametrize("architecture", MACHINES)
def test_a_wheel_has_a_static_program_of_its_architecture(wheels: dict[str, Path], architecture: str) -> None:
    wheel = wheel_of(wheels, architecture)
    for system in ("manylinux_2_17", "manylinux2014", "musllinux_1_1"):
        assert f"{system}_{architecture}" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/sfio-node")]
        program = archive.read(name)
        assert any(name.endswith("/NOTICES.txt") for name in archive.namelist())
    assert program[:6] == b"\x7fELF\x02\x01"
    assert struct.unpack_from("<H", program, 18)[0] == MACHINES[architecture]
    (begin,), (size, number) = struct.unpack_from("<Q", program, 32), struct.unpack_from("<HH", program, 54)
    kinds = [struct.unpack_from("<I", program, begin + size * each)[0] for each in range(number)]
    assert _INTERPRETER not in kinds


@pytest.mark.parametrize("version", PYTHONS)
def test_it_is_installed_where_nothing_else_is(wheels: dict[str, Path], tmp_path: Path, version: str) -> None:
    wheel, python = wheel_of(wheels, platform.machine()), interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    empty = tmp_path / "empty"
    subprocess.run([python, "-m", "venv", empty], check=True)
    pip = [empty / "bin" / "pip", "install", "--quiet", "--only-binary", "streamflow-io"]
    subprocess.run([*pip, wheel, "streamflow-postgresql"], check=True)
    environment = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
    environment |= {"PATH": f"{empty / 'bin'}:/usr/bin:/bin", "XDG_DATA_HOME": str(tmp_path)}

    def said(*command: str) -> str:
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    assert said("sfio-node", "--version").startswith("sfio-node ")
    listed = said("streamflow", "plugin", "list")
    assert "streamflow-io" in listed
    assert "streamflow-postgresql" in listed
    write_example(tmp_path)
    assert "streams" in said("streamflow-io", "plan", "streamflow.yml")
    assert "1 byte stream carried" in said("streamflow", "run", "--outdir", "out", "streamflow.yml")
    (total,) = (tmp_path / "out").iterdir()
    assert total.read_text() == "820\n"


def test_the_source_distribution_has_all_that_a_build_needs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "builder"], check=True)
    python = tmp_path / "builder" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "build"], check=True)
    subprocess.run([python, "-m", "build", "--sdist", "--outdir", tmp_path, REPOSITORY], check=True)
    (source,) = tmp_path.glob("streamflow_io-*.tar.gz")
    subprocess.run([python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("/sfio-node") for name in archive.namelist())


def test_the_other_architecture_is_taken_by_pip(wheels: dict[str, Path], tmp_path: Path) -> None:
    wheel = wheel_of(wheels, "aarch64")
    for system in ("manylinux2014_aarch64", "musllinux_1_1_aarch64"):
        target = ["--platform", system, "--only-binary", ":all:", "--no-deps", "--dest", str(tmp_path / system)]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *target, str(wheel)], check=True)
        assert list((tmp_path / system).iterdir())


def test_the_program_of_the_other_architecture_runs(wheels: dict[str, Path], tmp_path: Path) -> None:
    wheel, emulator = wheel_of(wheels, "aarch64"), shutil.which("qemu-aarch64-static")
    if emulator is None or platform.machine() == "aarch64":
        pytest.skip("qemu-aarch64-static is not there")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/sfio-node")]
        program = Path(archive.extract(name, tmp_path))
    program.chmod(0o755)
    said = subprocess.run([emulator, program, "--version"], check=True, capture_output=True, text=True)
    assert said.stdout.startswith("sfio-node ")
