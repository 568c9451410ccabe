"""The key of a proof that an input can be read as a stream: it says for which jobs the proof holds.

A program may treat an input differently for everything else that it is given. So a proof holds for the same tool, with
the same values of all inputs. Of a data file only its extension counts: a proof from one sample holds for the next.
Other small files have to be the same, also below a Directory. Files of earlier steps are data, unless they are scripts
or configurations. These are not streamed while they are small. The programs at the job's location have to be the same,
too: `cat` on another host, or in a container, may be another one.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from streamflow_io.graph.candidates import Candidate, Stamp
from streamflow_io.records.learned.proofs import ProofKey

from .directory_digest import SMALL_FILE, directory_digest
from .scripts import is_script, script_stamp

# Part of every key. To be changed with what a rehearsal tries, or a key has, so that lesser proofs do not count.
_HOW = "with a short file, too, and the same scripts"


#: Programs at the location of a job that differ from those on the driver's node, by the words of its tool.
OtherPrograms = tuple[tuple[str, Stamp], ...]


def proof_key(
    candidate: Candidate,
    port: str,
    inputs: Mapping[str, Any],
    programs: OtherPrograms = (),
    *,
    sees_files: bool = False,
) -> ProofKey | None:
    """The key for proofs about an input of a job.

    The contents do not count for a declared input: what was refuted with some contents stays so with others.

    :param port: the input
    :param inputs: the inputs of the job, as in CWL; a file that is still written has no size and no checksum
    :param programs: the programs of the tool that differ at the location of the job
    :param sees_files: whether each Directory of the job is complete, and all paths are those on the driver's node
    :return: None: the job has a Directory whose contents are not known, or the input is a small script
    """
    is_declared = port in candidate.declared
    paths = [] if is_declared else [path for name in sorted(inputs) for path in _directories(inputs[name])]
    contents = [directory_digest(path) if path and sees_files else None for path in paths]
    if None in contents or (not is_declared and _has_script(inputs.get(port), sees_files=sees_files)):
        return None
    data = {*candidate.inputs, *candidate.declared}

    def rule(name: str) -> _Rule:
        if name not in data:
            return _Rule("small", sees_files and not is_declared)
        return _Rule("none" if is_declared or name == port else "scripts", sees_files)

    options = {name: _option(value, rule(name)) for name, value in inputs.items()}
    content = [_HOW, options, programs, *([contents] if contents else [])]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return ProofKey(candidate.tool, "declared" if is_declared else "reads", port, digest)


class _Rule(Struct, frozen=True):
    """A rule for the files of an input whose contents count.

    :ivar contents: of small files, of scripts only because other files are data, or of no file
    :ivar sees_files: as for :func:`proof_key`
    """

    contents: Literal["small", "scripts", "none"]
    sees_files: bool

    def counts(self, file: Mapping[str, Any]) -> bool:
        size = file.get("size")
        # A file with neither is still written, and was proven as data.
        if self.contents == "none" or (size is None and "contents" not in file):
            return False
        if self.contents == "small":
            return size is None or size <= SMALL_FILE or "contents" in file
        return is_script(file, is_seen=self.sees_files)


def _has_script(value: Any, *, sees_files: bool) -> bool:
    """Whether a value has a complete file that is a script."""
    if isinstance(value, Mapping) and value.get("class") == "File":
        return value.get("size") is not None and is_script(value, is_seen=sees_files)
    if isinstance(value, Mapping):
        return any(_has_script(inner, sees_files=sees_files) for inner in value.values())
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and any(_has_script(inner, sees_files=sees_files) for inner in value)


def _directories(value: Any) -> Iterator[str | None]:
    """The paths of all Directories in a value; None: a Directory has no path."""
    if isinstance(value, Mapping) and value.get("class") == "Directory":
        yield value.get("path")
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _directories(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _directories(inner)


def _option(value: Any, rule: _Rule) -> Any:
    if isinstance(value, Mapping):
        if value.get("class") in ("File", "Directory"):
            return _kind(value, rule)
        return {str(key): _option(inner, rule) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        options = [_option(inner, rule) for inner in value]
        # The number of samples does not matter.
        is_data = rule.contents != "small"
        return sorted({json.dumps(option, sort_keys=True) for option in options}) if is_data else options
    if isinstance(value, str) and rule.sees_files and (stamp := script_stamp(value)) is not None:
        return [value, stamp]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _kind(file: Mapping[str, Any], rule: _Rule) -> Any:
    extension = posixpath.splitext(str(file.get("basename", "")))[1]
    content = _content(file) if file["class"] == "File" and rule.counts(file) else None
    beside = [_kind(other, rule) for other in file.get("secondaryFiles") or ()]
    return [file["class"], extension, content, beside]


def _content(file: Mapping[str, Any]) -> str:
    if checksum := file.get("checksum"):
        return str(checksum)
    if (contents := file.get("contents")) is not None:
        return hashlib.sha256(str(contents).encode()).hexdigest()
    return "not known"
