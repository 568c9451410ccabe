"""The key of a proof that an input can be read as a stream: it says for which jobs the proof holds.

A program may treat an input differently for everything else that it is given. So a proof holds for the same tool, with
the same values of all inputs. Of a data file only its extension and its format count: a proof from one sample holds for
the next. Other small files and all scripts have to be the same, also below a Directory. Files of earlier steps are
data, unless they are scripts or configurations. These are not streamed. The programs at the job's location have to be
the same, too: `cat` on another host, or in a container, may be another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from streamflow_io.adapters.paths import CHECKSUM, SMALL_FILE
from streamflow_io.graph.candidates import Candidate, Stamp
from streamflow_io.records.learned.proofs import ProofKey

# Part of every key. To be changed with what a rehearsal tries, or a key has, so that lesser proofs do not count.
_HOW = "with a short file, with other streams, without alarms, and the same scripts of any size"


#: Programs at the location of a job that differ from those on the driver's node, by the words of its tool.
OtherPrograms = tuple[tuple[str, Stamp], ...]


def proof_key(
    candidate: Candidate,
    port: str,
    inputs: Mapping[str, Any],
    programs: OtherPrograms = (),
    *,
    sees_files: bool = False,
    digests: MutableMapping[str, str | None] | None = None,
) -> ProofKey | None:
    """The key for proofs about an input of a job.

    The contents do not count for a declared input: what was refuted with some contents stays so with others.

    :param port: the input
    :param inputs: the inputs of the job, as in CWL; a file that is still written has no size and no checksum
    :param programs: the programs of the tool that differ at the location of the job
    :param sees_files: whether each Directory of the job is complete, and all paths are those on the driver's node
    :param digests: those of Directories of the job that are known, by path; gets the others
    :return: None: the contents of a Directory or of a file that counts are not known, or the input is a small script
    """
    digests = {} if digests is None else digests
    is_declared = port in candidate.declared
    contents: list[str | None] = []
    if not is_declared:
        directories = (each for name in sorted(inputs) for each in _files(inputs[name], "Directory"))
        paths = [directory.get("path") if sees_files else None for directory in directories]
        for path in filter(None, paths):
            if path not in digests:
                digests[path] = directory_digest(path)
        contents = [digests[path] if path else None for path in paths]
        complete = (file for file in _files(inputs.get(port), "File") if file.get("size") is not None)
        if None in contents or any(is_script(file, is_seen=sees_files) for file in complete):
            return None
    data = {*candidate.inputs, *candidate.declared}

    def rule(name: str) -> _Rule:
        if name not in data:
            return _Rule("small", sees_files and not is_declared)
        return _Rule("none" if is_declared or name == port else "scripts", sees_files)

    try:
        options = {name: _option(value, rule(name)) for name, value in inputs.items()}
    except _UnknownError:
        return None
    content = [_HOW, options, programs, *([contents] if contents else [])]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return ProofKey(candidate.tool, "declared" if is_declared else "reads", port, digest)


class _UnknownError(Exception):
    """The content of a file counts, and is not known."""


class _Rule(Struct, frozen=True):
    """A rule for the files of an input whose contents count.

    :ivar contents: of small files and of scripts, of scripts only because other files are data, or of no file
    :ivar sees_files: as for :func:`proof_key`
    """

    contents: Literal["small", "scripts", "none"]
    sees_files: bool

    def counts(self, file: Mapping[str, Any]) -> bool:
        size = file.get("size")
        # A file with neither is still written, and was proven as data.
        if self.contents == "none" or (size is None and "contents" not in file):
            return False
        if self.contents == "small" and (size is None or size <= SMALL_FILE or "contents" in file):
            return True
        return is_script(file, is_seen=self.sees_files)


def _files(value: Any, kind: Literal["File", "Directory"]) -> Iterator[Mapping[str, Any]]:
    """All values of a class in a value of CWL, without those inside them."""
    if isinstance(value, Mapping):
        if value.get("class") == kind:
            yield value
        else:
            yield from _files(list(value.values()), kind)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _files(inner, kind)


def _option(value: Any, rule: _Rule) -> Any:
    if isinstance(value, Mapping):
        if value.get("class") in ("File", "Directory"):
            return _kind(value, rule)
        return {str(key): _option(inner, rule) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        options = [_option(inner, rule) for inner in value]
        if rule.contents == "small":
            return options
        # Some programs do something else with several samples than with one. The number does not matter.
        return [len(options) > 1, *sorted({json.dumps(option, sort_keys=True) for option in options})]
    if isinstance(value, str) and rule.sees_files and (stamps := _script_stamps(value)):
        return [value, stamps]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _kind(file: Mapping[str, Any], rule: _Rule) -> Any:
    extension = posixpath.splitext(str(file.get("basename", "")))[1]
    content = _content(file, rule) if file["class"] == "File" and rule.counts(file) else None
    beside = [_kind(other, rule) for other in file.get("secondaryFiles") or ()]
    # The tool may be given other options for another format.
    return [file["class"], extension, content, beside, *filter(None, [file.get("format")])]


def _content(file: Mapping[str, Any], rule: _Rule) -> Any:
    """Return what tells the content of a file from others.

    A file has no checksum where its location cannot compute one, or while a large file is still read for one.

    :raises _UnknownError: if nothing tells that
    """
    if CHECKSUM.fullmatch(checksum := str(file.get("checksum"))):
        return checksum
    if (contents := file.get("contents")) is not None:
        return hashlib.sha256(str(contents).encode()).hexdigest()
    path = str(file.get("path")) if rule.sees_files else ""
    found = _regular_file(path)
    if found is None or not os.path.isabs(path):
        raise _UnknownError
    if found.st_size > SMALL_FILE:
        return found.st_size, found.st_mtime_ns
    try:
        with open(path, "rb") as opened:
            return hashlib.sha256(opened.read()).hexdigest()
    except OSError:
        raise _UnknownError from None


# Scripts, archives of scripts, and libraries. Such a name says so of a large file, too.
_LANGUAGES = (
    "awk|bash|cjs|class|egg|groovy|ipynb|jar|jl|js|ksh|lua|mjs|nf|php|pl|pm|py|pyc|pyz|r|rb|rmd|sed|sh|smk|so|tcl|wdl"
    "|whl|zsh"
)
_PROGRAM = re.compile(rf".*\.(?:{_LANGUAGES})", re.IGNORECASE | re.DOTALL)
# Tables and texts are not among them: a proof is to hold for other data. A large file with one of the added names may
# be data.
_SCRIPT = re.compile(
    rf".*\.(?:{_LANGUAGES}"
    r"|bat|bc|cfg|conf|config|cwl|do|gnuplot|gp|ini|jq|json|m|mak|mk|plt|properties|sql|toml|ts|xml|xsl|yaml|yml)",
    re.IGNORECASE | re.DOTALL,
)
# An absolute path among other words.
_PATH = re.compile(r"""/[^\s'"`;|&<>()\[\]{}=,:!#\\]+""")
# The extensions of programs without such a name, which may be large.
_PROGRAMS = ("", ".bin", ".exe", ".out")
# A script that names its interpreter, and a program of Linux. Some data begin with `#!` and a word.
_BEGINNING = re.compile(rb"#![ \t]*/|\x7fELF")


def is_script(file: Mapping[str, Any], *, is_seen: bool) -> bool:
    """Whether a complete File of CWL is a script, a configuration or a program.

    :param is_seen: whether its path is one on the driver's node
    """
    name, is_large = str(file.get("basename", "")), (file.get("size") or 0) > SMALL_FILE
    if (_PROGRAM if is_large else _SCRIPT).fullmatch(name):
        return True
    if is_large and posixpath.splitext(name)[1] not in _PROGRAMS:
        return False
    return is_seen and _begins_as_script(file.get("path"))


def _script_stamps(text: str) -> dict[str, tuple[int, int]]:
    """The stamps of the scripts on this node whose paths a text has, as a command line for the shell does."""
    found = ((path, script_stamp(path)) for path in (text, *_PATH.findall(text)))
    return {path: stamp for path, stamp in found if stamp is not None}


def script_stamp(path: str) -> tuple[int, int] | None:
    """Return the size and the time of modification of a script on this node; None: the path has no script."""
    if not os.path.isabs(path) or (found := _regular_file(path)) is None:
        return None
    file = {"basename": posixpath.basename(path), "path": path, "size": found.st_size}
    return (found.st_size, found.st_mtime_ns) if is_script(file, is_seen=True) else None


def _begins_as_script(path: str | None) -> bool:
    # A FIFO is not opened.
    if path is None or _regular_file(path) is None:
        return False
    try:
        with open(path, "rb") as file:
            return _BEGINNING.match(file.read(16)) is not None
    except OSError:
        return False


def _regular_file(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


# A Directory with more is too large to be looked at for each job.
_MOST_NAMES, _MOST_BYTES = 1000, 2**22
# Python writes into these directories when a job runs, and compares what it finds there with the modules.
_CACHE = "__pycache__"


def directory_digest(path: str) -> str | None:
    """Return a digest of all names below a directory, of the contents of its small files, and of its large programs.

    A large program is known by its size and its time of modification.

    :return: None: the directory cannot be read, or has too much below it
    """
    digest, names, left = hashlib.sha256(), 0, _MOST_BYTES
    try:
        for name, found in _below(path):
            names += 1
            file = os.path.join(path, name)
            content = None if found is None else _small_content(file, found)
            left -= len(content or b"")
            if names > _MOST_NAMES or left < 0:
                return None
            of = script_stamp(file) if content is None else hashlib.sha256(content).hexdigest()
            digest.update(json.dumps([name, found is None, of]).encode() + b"\n")
    except OSError:
        return None
    return digest.hexdigest()


def _below(path: str, inside: str = "") -> Iterator[tuple[str, os.stat_result | None]]:
    """The names below a directory in order; each file has its status.

    :param inside: a directory below `path`
    :raises OSError: if something cannot be read, or a link leads nowhere or back to its own directory
    """
    for name in sorted(os.listdir(os.path.join(path, inside))):
        relative = os.path.join(inside, name)
        found = os.stat(os.path.join(path, relative))
        if not stat.S_ISDIR(found.st_mode):
            yield relative, found
        elif name != _CACHE:
            yield relative, None
            yield from _below(path, relative)


def _small_content(path: str, found: os.stat_result) -> bytes | None:
    """The content of a small file; None: the file is larger.

    :raises OSError: if the content cannot be read
    """
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is no file")
    if found.st_size > SMALL_FILE:
        return None
    with open(path, "rb") as file:
        return file.read(SMALL_FILE)
