"""The directory that runs share for a storage: which one it is, its files and locks.

`ledger.json` says what is shared. `runs/ID.json` says what one run holds and wants. Each run writes its own entry, and
keeps it locked while the run lives. `lock` is held around every look; its content counts the changes that other runs
have to know at once.

A storage is identified by what it is, not by its name: two StreamFlow files may give it different names.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import pwd
import random
import shutil
import stat
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from typing_extensions import Self

from streamflow_io.files import NOT_BELIEVED, stranger, write_atomically
from streamflow_io.hints.config import StorageConfig
from streamflow_io.records.runs import data_directory
from streamflow_io.storage.probe.mounts import MOUNTINFO, mount_of

from .entries import ENTRY_BYTES, Entry, LedgerFile
from .other_entries import Other, OtherEntries, SharingError, try_lock

LOCK_SECONDS = 5.0
NEWS_BYTES = 8
# A run may wait for the lock for this part of its time, and LOCK_SECONDS more. More means that others keep the lock.
_WAITS = 0.5
# As a rule, the lock is held for less than a millisecond.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.01
# A longer time between two tries means that this process was stopped; it does not count as waiting.
_MOST_BETWEEN_TRIES = 0.1


class SharedDirectory(Struct, frozen=True):
    """The directory where runs say what they hold of a storage.

    :ivar path: absolute
    :ivar storage: the name of the storage, for people
    :ivar mine: only runs of this user share the directory, which is made when needed. Otherwise `streamflow-io storage
        share` has made it
    :ivar storage_path: the path of the storage, for people
    """

    path: Path
    storage: str
    mine: bool = True
    storage_path: str = ""


class News(Struct, frozen=True):
    """Counters of returned and requested bandwidth. Only a change of a counter has a meaning."""

    returned: bytes
    asked: bytes


class OpenDirectory:
    """A shared directory in use. :meth:`open` makes it, :meth:`close` ends it.

    All methods raise :class:`SharingError`, or `OSError`, where sharing does not work. Then the run holds nothing of
    the storage.
    """

    def __init__(self, shared: SharedDirectory, runs: int, lock: int, ledger: LedgerFile, closing: ExitStack) -> None:
        self._shared = shared
        self.path = shared.path
        self.is_network = _is_network(shared.path)
        self._runs = runs
        self._lock = lock
        self._closing = closing
        self._own: int | None = None
        # For how long the run may still wait for the lock, and when that was computed.
        self._patience, self._last = LOCK_SECONDS, time.monotonic()
        self._others = OtherEntries(runs)
        self.identifier = f"{uuid.uuid4().hex}.json"
        self.ledger = ledger

    @classmethod
    def open(cls, shared: SharedDirectory, seconds: float | None = None) -> Self:
        """Open an existing directory; :func:`make_own` and :func:`make_shared` make one.

        :param seconds: how long to wait for its lock. None: LOCK_SECONDS
        """
        with ExitStack() as opened:
            directory = _open_directory(shared.path, None, shared.mine)
            opened.callback(os.close, directory)
            ledger = _ledger(shared, directory)
            runs = _open_directory(shared.path / "runs", directory, shared.mine)
            opened.callback(os.close, runs)
            lock = os.open("lock", os.O_RDWR | NOT_BELIEVED, dir_fd=directory)
            opened.callback(os.close, lock)
            if not stat.S_ISREG(os.fstat(lock).st_mode):
                raise SharingError(f"{shared.path / 'lock'} is no file")
            found = cls(shared, runs, lock, ledger, opened)
            with found.locked(seconds):
                _try_locks("lock", directory)
            found._closing = opened.pop_all()
        return found

    def close(self) -> None:
        """Close all files, free what this run held, and remove its entry."""
        if self._own is not None:
            with suppress(OSError):
                os.unlink(self.identifier, dir_fd=self._runs)
            self._own = None
            with suppress(OSError, SharingError):
                self.tell(returned=True)
        self._closing.close()

    @contextmanager
    def locked(self, seconds: float | None = None) -> Iterator[None]:
        """Hold the lock: no other run looks or writes meanwhile.

        :param seconds: how long to wait for the lock. None: the patience of this run, at most LOCK_SECONDS
        :raises SharingError: if another process holds the lock for so long, or the files have been removed
        """
        now = time.monotonic()
        self._patience = min(LOCK_SECONDS, self._patience + _WAITS * (now - self._last))
        self._last = now
        self._patience -= _take(self._lock, self._patience if seconds is None else seconds)
        try:
            for descriptor, what in ((self._lock, "its files were"), (self._own, "the entry of this run was")):
                if descriptor is not None and os.fstat(descriptor).st_nlink == 0:
                    raise SharingError(f"{what} removed")
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def others(self) -> list[Other]:
        """Return the entries of living runs but this one, and remove the others. The lock must be held."""
        return self._others.look(self.identifier)

    def write(self, entry: Entry) -> None:
        """Write this run's entry, and make it if there is none. The lock must be held."""
        if self._own is None:
            self._own = self._make_entry()
        if os.pwrite(self._own, entry.to_bytes(), 0) != ENTRY_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._shared.path))

    def written(self) -> float:
        """Return when this run's entry was written, by the clock of the file system. 0: there is no entry."""
        return 0.0 if self._own is None else os.fstat(self._own).st_mtime

    def news(self) -> News:
        """Return the counters of changes. Needs no lock."""
        both = os.pread(self._lock, 2 * NEWS_BYTES, 0)
        return News(both[:NEWS_BYTES], both[NEWS_BYTES:])

    def tell(self, returned: bool = False, asked: bool = False) -> None:
        """Count a return or a request of bandwidth, so that other runs look soon. The lock must be held."""
        for place, said in enumerate((returned, asked)):
            if said:
                count = int.from_bytes(os.pread(self._lock, NEWS_BYTES, place * NEWS_BYTES), "little")
                one_more = ((count + 1) % 256**NEWS_BYTES).to_bytes(NEWS_BYTES, "little")
                os.pwrite(self._lock, one_more, place * NEWS_BYTES)

    def _make_entry(self) -> int:
        name = self.identifier
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | NOT_BELIEVED, 0o600, dir_fd=self._runs)
        self._closing.callback(os.close, descriptor)
        try:
            # Before others may open the file, and lock it themselves.
            if not try_lock(descriptor, fcntl.LOCK_EX):
                raise SharingError("another process has locked the entry of this run")
            if not self._shared.mine:
                os.fchmod(descriptor, 0o640)
        except BaseException:
            os.unlink(name, dir_fd=self._runs)
            raise
        return descriptor


def _try_locks(lock: str | Path, directory: int | None = None) -> None:
    """Check that a held lock keeps others out, even of this process. The lock must be held."""
    # NFS gives a lock only on a file that is open for writing.
    again = os.open(lock, os.O_RDWR | NOT_BELIEVED, dir_fd=directory)
    try:
        if try_lock(again, fcntl.LOCK_EX):
            raise SharingError("locks do not work there: two processes hold one lock at once")
    finally:
        os.close(again)


def _take(lock: int, seconds: float) -> float:
    """Take a lock.

    :return: how long that took, without the time for which this process was stopped
    """
    waited, before, pause = 0.0, time.monotonic(), _FIRST_PAUSE
    while not try_lock(lock, fcntl.LOCK_EX):
        if waited >= seconds:
            raise SharingError(f"another process has held its lock for {LOCK_SECONDS:g} s")
        time.sleep(random.uniform(0.5, 1.0) * pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        now = time.monotonic()
        waited, before = waited + min(now - before, _MOST_BETWEEN_TRIES), now
    return waited


def _open_directory(path: Path, within: int | None, mine: bool) -> int:
    name = str(path) if within is None else path.name
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | NOT_BELIEVED, dir_fd=within)
    try:
        found = os.fstat(descriptor)
        if found.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not found.st_mode & stat.S_ISVTX:
            raise SharingError(f"{path} can be written by others and is not sticky")
        if not (found.st_uid in (0, os.geteuid()) or (not mine and _is_member(found.st_uid, found.st_gid))):
            raise SharingError(f"{path} belongs to user {found.st_uid}, not a member of its group {found.st_gid}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_member(user: int, group: int) -> bool:
    """Whether a user is in a group."""
    try:
        found = pwd.getpwuid(user)
        return group in os.getgrouplist(found.pw_name, found.pw_gid)
    except KeyError:  # a user without a name
        return False


def _ledger(shared: SharedDirectory, directory: int) -> LedgerFile:
    try:
        descriptor = os.open("ledger.json", os.O_RDONLY | NOT_BELIEVED, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError
            ledger = LedgerFile.model_validate_json(os.pread(descriptor, 2 * ENTRY_BYTES, 0))
        finally:
            os.close(descriptor)
        if not shared.mine and ledger.bandwidth is None:
            raise ValueError
    except (ValueError, FileNotFoundError) as error:  # ValidationError is a ValueError
        if shared.mine:
            raise SharingError(f"{shared.path / 'ledger.json'} is of another version, or damaged") from error
        allowed = "one made by streamflow-io storage share"
        raise SharingError(f"{shared.path} is no shared ledger; allowed: {allowed}") from error
    return ledger


def _is_network(path: Path) -> bool:
    return mount_of(path).scope == "shared"


def make_own(shared: SharedDirectory) -> None:
    """Make a directory for the runs of this user, if there is none. Several runs may do so at once.

    :raises SharingError: if another user could write there
    :raises OSError: if the directory cannot be made
    """
    shared.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    (shared.path / "runs").mkdir(mode=0o700, exist_ok=True)
    if (why := stranger(shared.path)) is not None:
        raise SharingError(f"another user could have written there: {why}")
    os.close(os.open(shared.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    ledger = shared.path / "ledger.json"
    # When a machine has crashed, a file may be there without its content.
    if not ledger.exists() or ledger.lstat().st_size == 0:
        write_atomically(ledger, LedgerFile(path=shared.storage_path).model_dump_json() + "\n")


def check_locks(lock: Path) -> None:
    """Check that a held lock keeps others out. Makes the file if there is none.

    :raises SharingError: if not
    :raises OSError: if the file cannot be made
    """
    with lock.open("ab") as held:
        try_lock(held.fileno(), fcntl.LOCK_EX)
        _try_locks(lock)


def make_shared(path: Path, ledger: LedgerFile, group: int, directories: Sequence[str] = ()) -> None:
    """Make a directory that several users may share.

    :param group: the group whose members may use the directory
    :param directories: further directories in it, where all runs may make files
    :raises SharingError: if the path exists, or locks do not work
    :raises OSError: if the directory cannot be made
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
        check_locks(made / "lock")
        modes = {"ledger.json": 0o640, "lock": 0o660} | dict.fromkeys([*directories, ""], 0o3770)
        for name, mode in modes.items():
            os.chown(made / name, -1, group)
            os.chmod(made / name, mode)  # last, because chown clears the set-gid bit
        made.rename(path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


Deployments = Mapping[str, Mapping[str, Any]]
_MACHINE = Path("/etc/machine-id")
_MOUNTS = MOUNTINFO
# Fields in the `config` of a deployment that say which hosts it is.
_HOSTS = ("nodes", "hostname", "host", "url", "kubeconfig", "kubeContext", "namespace", "inCluster")

# Deployments on the machine of the driver, unless they wrap another deployment.
_BESIDE = ("docker", "docker-compose", "singularity")


def own_directories() -> Path:
    """Return the parent, which may not exist, of the directories that this user's runs share."""
    return data_directory() / "shared"


def shared_directories(storages: Iterable[StorageConfig], deployments: Deployments) -> dict[str, SharedDirectory]:
    """Return the directory of each shared storage, by the name of the storage.

    Entries of one StreamFlow file on the same file system are told apart by their paths. So a run that is alone gives
    each entry the bandwidth that the entry says.

    :param deployments: the deployments of the StreamFlow file
    :raises OSError: if the mounts of this node cannot be read
    """
    found, whole = {}, {}
    shared = [storage for storage in storages if storage.shared_with != "off"]
    for storage in shared:
        if storage.shared_with == "mine":
            whole[storage.name] = _identity(storage, deployments)
    several = [identity for identity in whole.values() if [*whole.values()].count(identity) > 1]
    for storage in shared:
        if storage.name not in whole:
            path, mine = Path(storage.shared_with), False
        else:
            identity = whole[storage.name]
            parts = (*identity, _path(storage)) if identity in several else identity
            name, mine = hashlib.sha256(json.dumps(parts).encode()).hexdigest(), True
            path = own_directories() / name
        found[storage.name] = SharedDirectory(path, storage.name, mine, storage.path)
    return found


def _identity(storage: StorageConfig, deployments: Deployments) -> tuple[str, ...]:
    """Return the identity of a storage, the same from everywhere."""
    path = _path(storage)
    names = [*deployments] if storage.deployment is None else [storage.deployment]
    elsewhere = sorted(_hosts(name, deployments) for name in names if not _is_here(name, deployments))
    # An entry may be for this node and others. A path that exists here is one storage for all, because it is shared.
    if not elsewhere or (storage.deployment is None and os.path.exists(path)):
        return _here(path)
    return ("elsewhere", path, *elsewhere)


def _path(storage: StorageConfig) -> str:
    return os.path.normpath(storage.path)


def _here(path: str) -> tuple[str, ...]:
    mount = mount_of(path, _MOUNTS)
    if mount.scope == "shared":  # the same from each node
        return "network", mount.file_system, mount.source
    return "local", _machine(), mount.file_system, mount.device


def _machine() -> str:
    try:
        return _MACHINE.read_text("utf-8").strip() or platform.node()
    except OSError:
        return platform.node()


def _is_here(name: str, deployments: Deployments) -> bool:
    return str(deployments.get(name, {}).get("type", "local")) == "local"


def _hosts(name: str, deployments: Deployments) -> str:
    """Return a text of the hosts of a deployment and of all that it wraps, without their names."""
    found: dict[str, Any] = {}
    kind: str | None = None
    while name not in found and not _is_here(name, deployments):
        deployment = deployments.get(name, {})
        config = deployment.get("config") or {}
        kind = str(deployment.get("type"))
        found[name] = kind, {key: config[key] for key in _HOSTS if key in config}
        wraps = deployment.get("wraps")
        name = str(wraps.get("deployment") if isinstance(wraps, Mapping) else wraps)
    machine = [_machine()] if kind in _BESIDE else []
    return json.dumps([*found.values(), *machine], sort_keys=True, default=str)
