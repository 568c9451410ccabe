"""CAPIO itself, built from its sources and tried: for the tests of `runtime: capio`, and to run with it.

    python -m laboratories.capio PREFIX

The sources are taken from GitHub, or, without a network, from `CAPIO_SOURCES`: a directory with a bare git repository
OWNER+NAME/repo for each of those that `capio.sh` names. It takes some 2 minutes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from streamflow_io.runtime.capio_check import check_capio
from streamflow_io.runtime.capio_installation import CapioError, find_capio

from .laboratory import LaboratoryError

_SCRIPT = Path(__file__).with_suffix(".sh")
_PROGRAMS = ("bash", "git", "cmake", "g++", "pkg-config", "mpicxx", "python3")
_LIBRARIES = ("capstone",)
_BUILD_SECONDS = 1200.0


def missing() -> str | None:
    """What CAPIO cannot be built without here; None: nothing is missing."""
    programs = [name for name in _PROGRAMS if shutil.which(name) is None]
    if programs:
        return f"{', '.join(programs)} is not on the PATH"
    for name in _LIBRARIES:
        if subprocess.run(["pkg-config", "--exists", name], check=False, capture_output=True).returncode != 0:
            return f"{name} is not installed with what programs are built with (lib{name}-dev)"
    return None


def home() -> Path:
    """CAPIO as it is installed, or, where `CAPIO_SOURCES` names its sources, as it is built of them, once.

    :return: for `CAPIO_HOME`
    :raises LaboratoryError: if it is neither installed nor can be built; says why
    """
    if named := os.environ.get("SFIO_TEST_CAPIO_HOME"):
        return Path(named)
    try:
        return find_capio().server.parent.parent
    except CapioError as error:
        sources = os.environ.get("CAPIO_SOURCES")
        if sources is None:
            raise LaboratoryError(f"{error}; and CAPIO_SOURCES names no sources to build it from") from None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    prefix = cache / "streamflow-io" / "capio"
    if not (prefix / "bin" / "capio_server").exists():
        build(prefix)
    return prefix


def build(prefix: Path) -> None:
    """Build and install it.

    :raises LaboratoryError: if that fails; says why
    """
    if (what := missing()) is not None:
        raise LaboratoryError(f"CAPIO cannot be built: {what}")
    partial = prefix.with_name(f"{prefix.name}.{os.getpid()}")
    try:
        with subprocess.Popen(
            ["bash", str(_SCRIPT), str(partial)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as building:
            try:
                said, _ = building.communicate(timeout=_BUILD_SECONDS)
            except BaseException as error:
                # What compiles is ended, too; the shell removes its directory.
                os.killpg(building.pid, signal.SIGTERM)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise LaboratoryError(f"CAPIO cannot be built in {_BUILD_SECONDS:.0f} s") from None
                raise
        if building.returncode != 0:
            raise LaboratoryError(f"CAPIO cannot be built: {said.strip()[-1000:]}")
        if prefix.exists():
            shutil.rmtree(prefix)
        partial.rename(prefix)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    prefix = Path(sys.argv[1]).resolve()
    try:
        build(prefix)
        version = check_capio(find_capio({"CAPIO_HOME": str(prefix)}))
    except (LaboratoryError, CapioError) as error:
        sys.exit(str(error))
    print(f"CAPIO {version or 'of unknown version'} works")
    print(f"export CAPIO_HOME={prefix}")


if __name__ == "__main__":
    main()
