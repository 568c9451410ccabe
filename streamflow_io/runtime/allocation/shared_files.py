"""File commands that the driver carries out itself, in directories that a node sees, too."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import posixpath
import re
import shlex
import stat
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.tasks import FileThread

from .commands import said

_PATH = r"/[A-Za-z0-9_./:@%+=,-]*"
_OF = rf"(?P<paths>{_PATH})"
# The commands by which StreamFlow looks at files of a location, and makes directories and links there.
_FORMS = {
    "make directory": rf"mkdir -m (?P<option>[0-7]{{1,4}}) (?:-p )?{_OF}",
    "make link": rf"ln -snf (?P<option>{_PATH}) {_OF}",
    "test": rf"test -(?P<option>[efdL]) {_OF}",
    "resolve": rf"test -e {_OF} && readlink -f (?P=paths)",
    "find": rf"""set -- {_OF} ; test -e "\$1" && printf '%s\\n' "\$@" ; :""",
    "size": rf"""find -L (?P<paths>"{_PATH}"(?: "{_PATH}")*) -type f -exec ls -ln {{}} \\\+ """
    r"""\| awk 'BEGIN \{sum=0\} \{sum\+=\$5\} END \{print sum\}'; """,
    "checksum": rf"test -f {_OF} && sha1sum (?P=paths) \| awk '{{print \$1}}'",
}


class FileCommand(Struct, frozen=True):
    """A command for files whose effect the driver knows.

    :ivar action: makes a directory, or a link; tests the kind of a file; prints the real path of a file that exists;
        prints its path, with the exit code 0 in any case; prints the bytes in files, and in all files below
        directories; prints the SHA-1 checksum of a file
    :ivar option: the mode of a directory in octal digits, the text of a link, or the option of `test`
    """

    action: str
    paths: tuple[str, ...]
    option: str = ""

    @property
    def path(self) -> str:
        return self.paths[0]


def file_command(text: str) -> FileCommand | None:
    """Read a command; None: another command, or one with a path that a shell may change, or that is not plain."""
    for action, form in _FORMS.items():
        if (found := re.fullmatch(form, text)) is not None:
            paths = tuple(re.findall(_PATH, found["paths"]))
            is_plain = all(posixpath.normpath(path) == path for path in paths)
            return FileCommand(action, paths, found.groupdict().get("option") or "") if is_plain else None
    return None


def concerns_files(text: str) -> bool:
    """Whether a command may be one of these, with a path that is not plain."""
    return text.startswith(("mkdir -m ", "ln -snf ", "test -", "find -L "))


Said = tuple[str, int]
Ask = Callable[[str], Awaitable[Said]]
_T = TypeVar("_T")

# File systems, as `stat` of GNU calls them, on which a node sees at once what another one has written.
# All others may cache attributes. NFS on one side is enough for this.
_LOCAL = frozenset(("ext2/ext3", "xfs", "btrfs", "zfs", "tmpfs", "overlayfs"))
_COHERENT = frozenset(("lustre", "gpfs", "ceph", "gfs/gfs2", "ocfs2")) | _LOCAL
_SHOW_TYPE = ("stat", "-f", "-c", "%T", "--")
_MOST_ENTRIES = 1000
_MOST_BYTES = 2**16  # of a file whose checksum is computed here
# A node gives its jobs up after a minute without a word from the driver, which must not wait for a file system.
_LOOK_SECONDS = 10.0
_OK: Said = ("", 0)
_KINDS = {"f": stat.S_ISREG, "d": stat.S_ISDIR, "L": stat.S_ISLNK}


class _ElsewhereError(Exception):
    """The node is to carry out the command."""


class _Shared(Struct, frozen=True):
    """A directory that a node and the driver share.

    :ivar identity: its device and inode, as the driver sees them
    :ivar is_coherent: whether the driver sees at once what the node has written there
    :ivar is_local: whether it is on a file system of the driver's node, which no network keeps waiting
    """

    identity: tuple[int, int]
    is_coherent: bool
    is_local: bool


class SharedFiles:
    """Directories that nodes and the driver share.

    The driver makes a directory, and the node tells its real path. If both agree, they share the directory above.
    After this, the driver makes all directories there. It looks at files only below directories that it has made.
    So no mount of the node can be in between. Whatever fails here is left to the node.

    On a file system that may cache attributes, the driver only makes directories with random names, and tells their
    real paths. A node may remember that a file with any other name is missing, for as long as a minute. All else is
    left to the node.
    """

    def __init__(self) -> None:
        # By node and directory. The result is None where they do not share the directory.
        self._shared: dict[tuple[str, str], asyncio.Task[_Shared | None]] = {}
        self._made: set[str] = set()
        # Nodes with files that the driver may not see.
        self._apart: set[str] = set()
        self._thread = FileThread()

    @property
    def proofs(self) -> Collection[asyncio.Future[Any]]:
        """The looks at what nodes share with the driver, which go on when their callers are cancelled."""
        return self._shared.values()

    async def answer(self, node: str, text: str, ask: Ask) -> Said | None:
        """Carry out a command.

        :param ask: runs another command on the node
        :return: what the node would have said; None: the node is to carry out the command
        """
        if (command := file_command(text)) is None:
            if concerns_files(text):
                self._apart.add(node)
            return None
        try:
            if command.action == "make directory" and self._root(command.path) is None:
                return await self._make(node, command, ask)
            is_quick = all(self._is_quick(node, path) for path in self._followed(command))
            return await self._aside(partial(self._carry_out_there, node, command), is_quick)
        except (OSError, _ElsewhereError):
            if command.action == "make directory" and not await self.sees(node, command.path, is_lost=True):
                self._apart.add(node)
            return None

    async def answer_for_lost(self, node: str, text: str) -> Said | None:
        """Carry out a command that looks at a file of a node that has ended; see :meth:`answer`."""
        command = file_command(text)
        if command is None or command.action in ("make directory", "make link"):
            return None
        try:
            for path in self._followed(command):
                await self._aside(partial(self._check, node, path, True))
            return await asyncio.to_thread(_carry_out, command, True)
        except (OSError, _ElsewhereError):
            return None

    async def carry_out(self, node: str, path: str, call: Callable[[], _T]) -> _T | None:
        """Let the driver itself do something with a file of a job.

        The file lies in a directory that the driver has made, or beside such a directory.

        :param call: may raise :class:`OSError`, and does not take long
        :return: what the call returns; None: the node is to do this
        """

        def checked() -> _T:
            if self._root(path) is None:
                self._check_beside(node, path)
            else:
                self._check(node, path, False)
            return call()

        try:
            return await self._aside(checked, self._is_quick(node, path))
        except (OSError, _ElsewhereError):
            return None

    def sees_all_of(self, node: str) -> bool:
        """Whether the driver sees all files of the jobs of a node."""
        return node not in self._apart

    async def sees(self, node: str, path: str, is_lost: bool = False) -> bool:
        """Whether a node and the driver see the same file at a path, at any moment.

        :param is_lost: whether the node has ended, and changes no file any more
        """
        try:
            await self._aside(partial(self._check, node, path, is_lost), self._is_quick(node, path))
        except (OSError, _ElsewhereError):
            return False
        return True

    async def _make(self, node: str, command: FileCommand, ask: Ask) -> Said:
        """Make a directory where the driver has made none above."""
        above = posixpath.dirname(command.path)
        known = self._shared.get((node, above))
        is_quick = self._is_quick(node, command.path)
        if known is not None and not await self._aside(partial(_is, await asyncio.shield(known), above), is_quick):
            raise _ElsewhereError
        await self._aside(partial(_carry_out, command), is_quick)
        try:
            if known is None:
                self._shared[node, above] = asyncio.ensure_future(self._proven(command.path, ask))
                if await asyncio.shield(self._shared[node, above]) is None:
                    raise _ElsewhereError
        except BaseException:
            with contextlib.suppress(OSError):
                await self._aside(partial(os.rmdir, command.path))
            raise
        self._made.add(command.path)
        return _OK

    async def _proven(self, directory: str, ask: Ask) -> _Shared | None:
        """Find out whether a node sees a directory that the driver has just made.

        :return: None: the node carries out all commands below the directory above
        """
        above = posixpath.dirname(directory)
        token = posixpath.join(directory, f".sfio-{os.urandom(8).hex()}")
        try:
            await self._aside(partial(os.mkdir, token))
            try:
                printed, code = await ask(f"cd {shlex.quote(token)} && pwd -P && {shlex.join([*_SHOW_TYPE, '.'])}")
                path, _, there = printed.partition("\n")
                if code != 0 or path != await self._aside(partial(os.path.realpath, token)):
                    return None
                here = (await said([*_SHOW_TYPE, above])).strip()
                identity = await self._aside(partial(_identity, above))
                return _Shared(identity, {there.strip(), here} <= _COHERENT, here in _LOCAL)
            finally:
                await self._aside(partial(os.rmdir, token))
        except (OSError, WorkflowExecutionException):
            return None

    async def _aside(self, call: Callable[[], _T], is_quick: bool = False) -> _T:
        """Look at files while the event loop goes on.

        :param is_quick: whether the call takes less time than a change of threads
        :raises TimeoutError: if a file system does not answer
        """
        return call() if is_quick else await self._thread.run(call, _LOOK_SECONDS)

    def _is_quick(self, node: str, path: str) -> bool:
        """Whether a path is on a file system of the driver's node, and no link leads elsewhere."""
        root = self._root(path)
        above = posixpath.dirname(path if root is None else root)
        shared = self._known(node, above)
        if shared is None or not shared.is_local:
            return False
        while path != above:
            if os.path.islink(path):
                return False
            path = posixpath.dirname(path)
        return True

    def _known(self, node: str, above: str) -> _Shared | None:
        """A directory that a node shares with the driver; None: the node does not, or nothing is known yet."""
        proving = self._shared.get((node, above))
        return proving.result() if proving is not None and proving.done() and not proving.cancelled() else None

    def _carry_out_there(self, node: str, command: FileCommand) -> Said:
        for path in self._followed(command):
            # A node sees a name at once that is new to it.
            is_new = command.action == "make directory" or (command.action == "resolve" and path in self._made)
            self._check(node, path, is_new and has_random_name(path))
        return _carry_out(command)

    def _followed(self, command: FileCommand) -> Sequence[str]:
        """The paths of a command, as far as the command follows links on them."""
        is_of_link = command.action == "test" and command.option == "L" and command.path not in self._made
        return [posixpath.dirname(command.path)] if is_of_link else command.paths

    def _root(self, path: str) -> str | None:
        """The directory that the driver has made and that has this path."""
        while path != "/":
            if path in self._made:
                return path
            path = posixpath.dirname(path)
        return None

    def _check(self, node: str, path: str, makes: bool) -> None:
        """Check that the driver sees at a path what the node sees.

        :param makes: whether the driver only makes something there, with a name that is new to all nodes
        :raises _ElsewhereError: if not
        """
        root = self._root(path)
        if root is None:
            raise _ElsewhereError
        self._check_shared(node, posixpath.dirname(root), makes)
        real, real_root = os.path.realpath(path), os.path.realpath(root)
        if posixpath.commonpath([real, real_root]) != real_root:
            raise _ElsewhereError

    def _check_beside(self, node: str, path: str) -> None:
        """Check the same of a path beside the directories that the driver has made.

        :raises _ElsewhereError: if the driver may see something else there
        """
        self._check_shared(node, posixpath.dirname(path), False)
        if os.path.islink(path):
            raise _ElsewhereError

    def _check_shared(self, node: str, above: str, makes: bool) -> None:
        """Check that a node shares a directory with the driver.

        :raises _ElsewhereError: if not, or if that is not known
        """
        shared = self._known(node, above)
        if shared is None or not _is(shared, above) or not (makes or shared.is_coherent):
            raise _ElsewhereError


def _is(shared: _Shared | None, directory: str) -> bool:
    return shared is not None and shared.identity == _identity(directory)


def has_random_name(path: str) -> bool:
    """Whether the last name of a path is one of those that StreamFlow draws at random."""
    try:
        uuid.UUID(posixpath.basename(path))
    except ValueError:
        return False
    return True


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _carry_out(command: FileCommand, takes_long: bool = False) -> Said:
    """Carry out a command, and return its output and its exit code.

    :raises OSError: if the command fails; the node tells why
    :raises _ElsewhereError: if the command takes long
    """
    if command.action == "make directory":
        os.mkdir(command.path)  # With a parent that is missing or a directory that exists, the node decides.
        os.chmod(command.path, int(command.option, 8))
        return _OK
    if command.action == "make link":
        os.symlink(command.option, command.path)
        return _OK
    if command.action == "test":
        return "", 0 if _has_kind(command) else 1
    if command.action == "size":
        return str(sum(_bytes_below(path, takes_long) for path in command.paths)), 0
    exists = os.path.exists(command.path)
    if command.action == "find":
        return command.path if exists else "", 0
    if command.action == "resolve":
        return (os.path.realpath(command.path), 0) if exists else ("", 1)
    return _checksum(Path(command.path), takes_long)


def _has_kind(command: FileCommand) -> bool:
    try:
        status = os.lstat(command.path) if command.option == "L" else os.stat(command.path)
    except FileNotFoundError:
        return False
    return command.option == "e" or _KINDS[command.option](status.st_mode)


def _bytes_below(path: str, takes_long: bool) -> int:
    status = os.stat(path)
    if stat.S_ISREG(status.st_mode):
        return os.lstat(path).st_size  # as `ls` shows it, which follows no link
    if not stat.S_ISDIR(status.st_mode):
        return 0
    total = entries = 0
    ahead = [path]
    while ahead:
        with os.scandir(ahead.pop()) as found:
            for entry in found:
                entries += 1
                if (entries > _MOST_ENTRIES and not takes_long) or entry.is_symlink():
                    raise _ElsewhereError
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _checksum(path: Path, takes_long: bool) -> Said:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or (status.st_size > _MOST_BYTES and not takes_long):
        raise _ElsewhereError
    computed = hashlib.sha1(usedforsecurity=False)
    with path.open("rb") as file:
        while part := file.read(_MOST_BYTES):
            computed.update(part)
    return computed.hexdigest(), 0
