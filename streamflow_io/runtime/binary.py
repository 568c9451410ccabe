"""Brings `sfio-node` to a location: the static binary, once, under a name that tells its content."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from .access import Access
from .node_commands import NodeRuntimeError, unsafe_workdir

DIRECTORY = ".streamflow-io"
# From the field e_machine of an ELF file to the output of `uname -m`.
_MACHINES = {3: "i686", 22: "s390x", 21: "ppc64le", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_SAID = re.compile(r"^sfio:(\w+)=(.*)$", re.MULTILINE)
# Lines have a mark, because the start of a shell may print, too. `way` says in `why` why another user could put a file
# into a directory, as :mod:`streamflow_io.files`. `here` says it of the working directory, `place`, and of the path
# that leads there: links count. One `ls` lists a directory and all above it, in this order, and `judge` reads the
# lines. Each line must be safe: a name with a newline can only make a safe directory look unsafe.
_WAYS = """
set -f; umask 022; LC_ALL=C; export LC_ALL
say() {{ printf 'sfio:%s=%s\\n' "$1" "$2"; }}
set -- $(uname -sm); say system "$1"; say machine "$2"
me=$(id -u); set -- $(ls -ldn /); top=$3
mounts=:; for mount in {mounts}; do mount=$(cd "$mount" 2>/dev/null && pwd -P) && mounts=$mounts$mount:; done
is_mount() {{
    test "$mounts" != : || return 1
    case $mounts in *":$(cd "$1" 2>/dev/null && pwd -P):"*) ;; *) return 1 ;; esac
}}
judge() {{
    while read -r mode links owner group rest; do
        open="others may write to $1, which is not sticky"
        case $mode in
        l* | ?????????[tT]*) open= ;;
        ????????w*) ;;
        ?????w*) test "$group $(id -g)" != "$me $me" || open= ;;
        *) open= ;;
        esac
        case $owner in 0 | "$me" | "$top" | {driver}) ;; *) open="$1 belongs to user $owner" ;; esac
        why=${{open:-$why}}
        test $# = 0 || shift
    done
    printf '%s' "$why"
}}
way() {{
    why=; part=$1; set --
    while ! is_mount "$part"; do
        set -- "$part" "$@"
        test "$part" != / || break
        part=${{part%/*}}; part=${{part:-/}}
    done
    test $# = 0 || why=$({{ ls -ldn "$@" || echo; }} | judge "$@") || exit 1
}}
here() {{ place=$(pwd -P); way "$place"; test -n "$why" || test "$PWD" = "$place" || way "$PWD"; }}
""".lstrip()
# In the directory of the binary. No program is run with another content.
_SAY_VERSION = """
say_version() {{
    test -f {binary} && test -O {binary} || return
    sum=$(sha256sum < {binary} 2>/dev/null)
    test "${{sum%% *}}" = {digest} && printf 'sfio:version=%s\\n' "$(./{binary} --version 2>&1)"
}}
""".lstrip()
# Several nodes, or drivers, may do this at once in one directory. The first file stays where it is a good one: on a
# network file system, nodes that run the file lose it when another one takes its place ("Stale file handle").
_PUT = (
    _SAY_VERSION
    + """
LC_ALL=C; export LC_ALL; cd {directory} || exit
ln {part} {binary} 2>/dev/null
say_version || {{ mv -f {part} {binary}; say_version; }}
rm -f {part}
"""
)
# No program is run from a directory of others.
_CHECK = (
    _WAYS
    + """
for temporary in "${{TMPDIR:-/tmp}}" /tmp; do
    temporary=$(cd "$temporary" && pwd -P) && way "$temporary" && test -z "$why" && break
done
test -z "$why" && say temporary "$temporary"; say open "$why"
cd {workdir} 2>/dev/null || {{ mkdir -p {workdir} && cd {workdir}; }} || exit 1
name={name}; mode=755; test {driver} = none || mode=711; test {own} = no || name=$name-$me
test -d "$name" || mkdir -m $mode "$name" 2>/dev/null || test -d "$name" || mkdir -m $mode "$name" || exit 1
cd "$name" || exit 1
here; say directory "$place"
test -n "$why" || test -O . || why="$place belongs to another user"
if test -n "$why"; then say foreign "$why"; exit; fi
"""
    + _SAY_VERSION
    + "say_version; exit 0\n"
)
_NOEXEC = " (is its file system mounted noexec?)"
_LOOK = _WAYS + 'mkdir -p {workdir} && cd {workdir} && here && say way "$why"'


class Binary(Struct, frozen=True, dict=True):
    """The local `sfio-node`.

    :ivar machine: the machine that it runs on, as `uname -m` names it; None: unknown
    :ivar path: its file, which may have files for other machines beside it; None: no file
    """

    content: bytes
    machine: str | None
    path: Path | None = None

    @classmethod
    def load(cls, path: Path) -> Binary:
        """Read the binary.

        :raises NodeRuntimeError: if it cannot be read
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise NodeRuntimeError(f"{path} cannot be read: {error.strerror}") from None
        is_elf = content[:4] == b"\x7fELF"
        return cls(content, _MACHINES.get(int.from_bytes(content[18:20], "little")) if is_elf else None, path)

    @property
    def name(self) -> str:
        """The name of its file at other locations."""
        return f"sfio-node-{self.digest[:16]}"

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its content, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    def runs_on(self, machine: str) -> bool:
        return self.machine in (None, machine)

    def built_for(self, machine: str) -> Binary | None:
        """The binary for another machine, from the file beside this one, as `sfio-node-aarch64`; None: no such file.

        :raises NodeRuntimeError: if it cannot be read, or is for yet another machine
        """
        # The name that a machine has for itself becomes part of a path.
        if self.path is None or machine not in _MACHINES.values():
            return None
        path = self.path.with_name(f"{self.path.name}-{machine}")
        if not path.exists():
            return None
        other = Binary.load(path)
        if not other.runs_on(machine):
            raise NodeRuntimeError(f"{path} is for Linux {other.machine}")
        return other


class Neighbours(Struct, frozen=True):
    """Other users that may see the work directory of a container, from other containers.

    :ivar user: may own directories above the work directory, as root may: the driver's user
    :ivar mounts: the volumes whose writers are trusted, whatever the modes say
    """

    user: int
    mounts: Sequence[str] = ()


class Delivered(Struct, frozen=True):
    """The `sfio-node` at a location.

    :ivar directory: the plugin's own in the work directory of the deployment; absolute, without links
    :ivar temporary: the directory for temporary files there; absolute, without links
    """

    binary: PurePosixPath
    directory: PurePosixPath
    temporary: PurePosixPath


async def deliver(
    access: Access, workdir: str, binary: Binary, neighbours: Neighbours | None = None, *, is_apart: bool = False
) -> Delivered:
    """Bring the binary, or the one for the machine there, to a location, if it is not there.

    :param workdir: of the deployment; made if it is missing
    :param neighbours: other users that may see the work directory from containers. Then each user has a directory
        there, which others cannot list. None: no such users
    :param is_apart: whether the binary may be in the directory for temporary files if the file system of the work
        directory is mounted noexec. With neighbours it may be there in any case
    :raises NodeRuntimeError: if the binary cannot be brought there, or does not run there, with one reason
    """
    delivered, why = await _bring(access, workdir, binary, neighbours)
    if why is None:
        return delivered
    if neighbours is not None or (is_apart and why.endswith(_NOEXEC)):
        try:
            other, otherwise = await _bring(access, str(delivered.temporary), binary, neighbours, is_own=True)
        except NodeRuntimeError as error:
            otherwise = str(error)
        if otherwise is None:
            return replace(delivered, binary=other.binary)
        why += f"; nor in {delivered.temporary}: {otherwise}"
    raise NodeRuntimeError(f"{access.name}: {delivered.binary} cannot be run: {why}")


async def _bring(
    access: Access, workdir: str, binary: Binary, neighbours: Neighbours | None, is_own: bool = False
) -> tuple[Delivered, str | None]:
    """Bring the binary.

    :param is_own: whether each user has a directory there
    :return: the paths, and why the binary cannot be run there; None: no obstacle
    """
    binary, delivered, version = await _check(access, workdir, binary, neighbours, is_own)
    if version is None:
        part = delivered.binary.with_name(f"{binary.name}.{os.urandom(4).hex()}")
        await access.write(part, binary.content, executable=True)
        directory = shlex.quote(str(delivered.directory))
        words = {"directory": directory, "part": part.name, "binary": binary.name, "digest": binary.digest}
        said, _ = await access.run(_PUT.format(**words))
        version = dict(_SAID.findall(said)).get("version")
    if version is None:
        return delivered, "the file is missing"
    if version.startswith("sfio-node "):
        # The file for another machine, which lies beside this one, may be of another build.
        return delivered, other_build(version)
    hint = _NOEXEC if version.endswith("ermission denied") else ""
    return delivered, version + hint


async def _check(
    access: Access, workdir: str, binary: Binary, neighbours: Neighbours | None, is_own: bool
) -> tuple[Binary, Delivered, str | None]:
    """Return the binary for the location, the paths, and the output of `--version` if the binary is there."""
    own = "no" if neighbours is None and not is_own else "yes"
    words = {"workdir": workdir, "name": DIRECTORY, "own": own, "binary": binary.name, "digest": binary.digest}
    text, code = await access.run(_script(_CHECK, words, neighbours))
    said = dict(_SAID.findall(text))
    machine = f"{said.get('system')} {said.get('machine')}"
    if "machine" in said and (said["system"] != "Linux" or not binary.runs_on(said["machine"])):
        other = await asyncio.to_thread(binary.built_for, said["machine"]) if said["system"] == "Linux" else None
        if other is not None:
            return await _check(access, workdir, other, neighbours, is_own)
        raise NodeRuntimeError(f"{access.name} is {machine}, and this sfio-node is for Linux {binary.machine}")
    if "foreign" in said:
        raise NodeRuntimeError(
            f"{access.name}: {workdir}: {said['foreign']}: another user could put a program there, choose "
            "another workdir"
        )
    if neighbours is None and "open" in said and "temporary" not in said:
        raise NodeRuntimeError(f"{access.name}: no directory for temporary files is safe: {said['open']}: set TMPDIR")
    needed = {"directory", "temporary"} if neighbours is None else {"directory"}
    if code != 0 or not needed <= said.keys():
        raise _unusable(access, workdir, text, code)
    directory = PurePosixPath(said["directory"])
    where = Delivered(directory / binary.name, directory, PurePosixPath(said.get("temporary", "/tmp")))
    return binary, where, said.get("version")


async def check_workdir(access: Access, workdir: str, neighbours: Neighbours | None) -> None:
    """Make a work directory at a location if it is missing, and check which users could replace files in it.

    :raises NodeRuntimeError: if another user could, or if that cannot be found out
    """
    text, code = await access.run(_script(_LOOK, {"workdir": workdir}, neighbours))
    why = dict(_SAID.findall(text)).get("way")
    if code != 0 or why is None:
        raise _unusable(access, workdir, text, code)
    if why:
        raise unsafe_workdir(workdir, why)


def _script(script: str, words: Mapping[str, str], neighbours: Neighbours | None) -> str:
    user, mounts = ("none", ()) if neighbours is None else (str(neighbours.user), neighbours.mounts)
    quoted = {word: shlex.quote(value) for word, value in {**words, "driver": user}.items()}
    return script.format(**quoted, mounts=shlex.join(mounts))


def _unusable(access: Access, workdir: str, text: str, code: int) -> NodeRuntimeError:
    why = "; ".join(line for line in text.splitlines() if not line.startswith("sfio:"))
    return NodeRuntimeError(f"{access.name}: {workdir} cannot be used: {why or f'exit code {code}'}")


#: The version of the protocol in the output of `sfio-node --version`. It is raised, here and in `node/src/main.rs`, by
#: each change of docs/node-protocol.md that an older build on the other side would not understand.
PROTOCOL = 14

_VERSION = re.compile(r"sfio-node (?P<version>\S+)(?: protocol (?P<protocol>[0-9]+))?")


def other_build(said: str) -> str | None:
    """Why this driver cannot talk with a program; None: no obstacle.

    :param said: the program's output for `--version`
    """
    found = _VERSION.fullmatch(said.strip())
    if found is None:
        return f"it is no sfio-node: it says {said.strip()[:200]!r}"
    protocol = found["protocol"]
    if protocol is not None and int(protocol) == PROTOCOL:
        return None
    has = "none yet" if protocol is None else protocol
    return (
        f"it is of another build (sfio-node {found['version']}, protocol {has}) than this streamflow-io (protocol "
        f"{PROTOCOL}): install both from one wheel, or build it again from the same sources"
    )
