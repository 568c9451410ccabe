"""What a proof about an input that is read as a stream holds for.

What a program does with one of its inputs can depend on all that it is given. So a proof holds for the same tool, with
the same values of all inputs. Of files only what kind they are counts, by their extensions, so that what was proven on
one sample holds for the next; but small ones, as scripts and configurations are, have to be the same. So have the
programs, where the job runs: `cat` of another host, or in a container, may be another one.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from streamflow_io.graph.candidates import Candidate, Stamp
from streamflow_io.records.learned.proofs import ProofKey

# Bytes up to which a file may be a script or a configuration.
_SMALL = 2**18
# Changes with what a rehearsal tries, so that what was tried less is tried anew.
_HOW = "with a short file, too"


#: Programs that are other ones where a job runs than on the driver's node, by the words of its tool.
OtherPrograms = tuple[tuple[str, Stamp], ...]


def proof_key(candidate: Candidate, port: str, inputs: Mapping[str, Any], programs: OtherPrograms = ()) -> ProofKey:
    """The key of what is known about an input of a job.

    :param inputs: those of the job, as in CWL; a file that is still written has no size and no checksum
    :param programs: of the tool, where it runs
    """
    data = {*candidate.inputs, *candidate.declared}
    options = {name: _option(value, is_data=name in data) for name, value in inputs.items()}
    content = [_HOW, options, programs]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return ProofKey(candidate.tool, "declared" if port in candidate.declared else "reads", port, digest)


def _option(value: Any, *, is_data: bool) -> Any:
    if isinstance(value, Mapping):
        if value.get("class") in ("File", "Directory"):
            return _kind(value, is_data=is_data)
        return {str(key): _option(inner, is_data=is_data) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        options = [_option(inner, is_data=is_data) for inner in value]
        # How many samples there are does not matter.
        return sorted({json.dumps(option, sort_keys=True) for option in options}) if is_data else options
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _kind(file: Mapping[str, Any], *, is_data: bool) -> Any:
    extension = posixpath.splitext(str(file.get("basename", "")))[1]
    size, checksum = file.get("size"), file.get("checksum")
    is_script = not is_data and isinstance(size, int) and size <= _SMALL and checksum
    beside = [_kind(other, is_data=is_data) for other in file.get("secondaryFiles") or ()]
    return [file["class"], extension, checksum if is_script else None, beside]
