"""The key of a proof that an input can be read as a stream: it says for which jobs the proof holds.

A program may treat an input differently for everything else that it is given. So a proof holds for the same tool, with
the same values of all inputs. Of a data file only its extension counts: a proof from one sample holds for the next.
Other small files, as scripts and configurations, have to be the same, also below a Directory. The programs at the job's
location have to be the same, too: `cat` on another host, or in a container, may be another one.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamflow_io.graph.candidates import Candidate, Stamp
from streamflow_io.records.learned.proofs import ProofKey

from .directory_digest import SMALL_FILE, directory_digest

# Part of every key. To be changed with what a rehearsal tries, so that proofs from lesser trials do not count.
_HOW = "with a short file, too"


#: Programs at the location of a job that differ from those on the driver's node, by the words of its tool.
OtherPrograms = tuple[tuple[str, Stamp], ...]


def proof_key(
    candidate: Candidate,
    port: str,
    inputs: Mapping[str, Any],
    programs: OtherPrograms = (),
    *,
    sees_directories: bool = False,
) -> ProofKey | None:
    """The key for proofs about an input of a job; None: the job has a Directory whose contents are not known.

    The contents do not count for a declared input: what was refuted with some contents stays so with others.

    :param port: the input
    :param inputs: the inputs of the job, as in CWL; a file that is still written has no size and no checksum
    :param programs: the programs of the tool that differ at the location of the job
    :param sees_directories: whether each Directory of the job is complete, and its path is one on the driver's node
    """
    is_declared = port in candidate.declared
    paths = [] if is_declared else [path for name in sorted(inputs) for path in _directories(inputs[name])]
    contents = [directory_digest(path) if path and sees_directories else None for path in paths]
    if None in contents:
        return None
    data = {*candidate.inputs, *candidate.declared}
    options = {name: _option(value, is_data=name in data) for name, value in inputs.items()}
    content = [_HOW, options, programs, *([contents] if contents else [])]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return ProofKey(candidate.tool, "declared" if is_declared else "reads", port, digest)


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


def _option(value: Any, *, is_data: bool) -> Any:
    if isinstance(value, Mapping):
        if value.get("class") in ("File", "Directory"):
            return _kind(value, is_data=is_data)
        return {str(key): _option(inner, is_data=is_data) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        options = [_option(inner, is_data=is_data) for inner in value]
        # The number of samples does not matter.
        return sorted({json.dumps(option, sort_keys=True) for option in options}) if is_data else options
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _kind(file: Mapping[str, Any], *, is_data: bool) -> Any:
    extension = posixpath.splitext(str(file.get("basename", "")))[1]
    size, checksum = file.get("size"), file.get("checksum")
    is_script = not is_data and isinstance(size, int) and size <= SMALL_FILE and checksum
    beside = [_kind(other, is_data=is_data) for other in file.get("secondaryFiles") or ()]
    return [file["class"], extension, checksum if is_script else None, beside]
