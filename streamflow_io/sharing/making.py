"""Directories that runs share are made here: those of one user when they are needed, those of several once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from streamflow_io.files import stranger, write_atomically

from .directory import NEWS_BYTES, SharedDirectory
from .entries import LedgerFile
from .locking import SharingError


def make_own(shared: SharedDirectory) -> None:
    """Make a directory for the runs of this user, if there is none; several may do so at once.

    :raises SharingError: if another user could write there
    :raises OSError: if it cannot be made
    """
    shared.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    (shared.path / "runs").mkdir(mode=0o700, exist_ok=True)
    if (why := stranger(shared.path)) is not None:
        raise SharingError(f"another user could have written there: {why}")
    os.close(os.open(shared.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    ledger = shared.path / "ledger.json"
    if not ledger.exists():
        write_atomically(ledger, LedgerFile(path=shared.storage_path).model_dump_json() + "\n")


def locks_keep_out(path: Path) -> bool:
    """Whether a lock on a file, which is made if it is not there, keeps out another process.

    :raises OSError: if there are no locks
    """
    program = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other = subprocess.run([sys.executable, "-I", "-S", "-c", program, path], capture_output=True, timeout=15)
    return other.returncode != 0 and b"BlockingIOError" in other.stderr


def make_shared(path: Path, ledger: LedgerFile, group: int, directories: Sequence[str] = ()) -> None:
    """Make a directory that several users may share.

    :param group: whose members may use it
    :param directories: beside that of the entries, in which all runs may make files
    :raises SharingError: if there is something already, or locks do not work
    :raises OSError: if it cannot be made
    """
    if ledger.bandwidth is None:
        raise ValueError("a shared directory says its bandwidth")
    if os.path.lexists(path):
        raise SharingError(f"{path} is there already")
    made = path.with_name(f".{path.name}-{uuid.uuid4().hex}.tmp")
    made.mkdir(0o700)
    try:
        directories = ["runs", *directories]
        for name in directories:
            (made / name).mkdir(0o700)
        (made / "ledger.json").write_text(ledger.model_dump_json() + "\n", encoding="utf-8")
        (made / "lock").write_bytes(bytes(2 * NEWS_BYTES))
        if not locks_keep_out(made / "lock"):
            raise SharingError("locks do not work there: two processes have the same at once")
        modes = {"ledger.json": 0o640, "lock": 0o660} | dict.fromkeys([*directories, ""], 0o3770)
        for name, mode in modes.items():
            os.chown(made / name, -1, group)
            os.chmod(made / name, mode)  # after the group, of which a change takes set-gid away
        made.rename(path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
