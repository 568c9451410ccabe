"""Read CAPIO-CL files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from streamflow_io.graph.capio_cl.configuration import Configuration
from streamflow_io.hints.yaml_files import plain, read_yaml, source_of

from .language.reading import read_capio_cl


def load_capio_cl(path: str | os.PathLike[str]) -> Configuration:
    """Read a CAPIO-CL file; see :func:`.language.reading.read_capio_cl`.

    :raises HintErrors: with all mistakes in it; also if it cannot be read or is no JSON
    """
    file = os.path.abspath(path)
    document = read_yaml(Path(path), "CAPIO-CL", "a CAPIO-CL file, in JSON", "no JSON: ")
    return read_capio_cl(cast(JsonValue, plain(document)), file, source_of(document, file).lines)
