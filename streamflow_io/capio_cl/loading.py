"""Coordination configurations in files. Edge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from pydantic import JsonValue
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.yaml_files import plain, source_of
from streamflow_io.hints.yaml_text import parse

from .configuration import Configuration
from .reading import read_capio_cl

_ALLOWED = "a CAPIO-CL file, in JSON"


def load_capio_cl(path: str | os.PathLike[str]) -> Configuration:
    """Read a CAPIO-CL file; see :func:`streamflow_io.capio_cl.reading.read_capio_cl`.

    :raises HintErrors: with all mistakes in it; also if it cannot be read or is no JSON
    """
    file = os.path.abspath(path)
    try:
        document = parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise HintErrors.one(file, "CAPIO-CL", f"cannot be read: {reason}", _ALLOWED) from None
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        message = getattr(error, "problem", None) or str(error)
        line = None if mark is None else mark.line + 1
        raise HintErrors.one(file, "CAPIO-CL", f"no JSON: {message}", _ALLOWED, line=line) from None
    return read_capio_cl(cast(JsonValue, plain(document)), file, source_of(document, file).lines)
