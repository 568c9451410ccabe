"""JavaScript in CWL: documents that need it, and the programs on this machine that evaluate it."""

from __future__ import annotations

import re
import shutil

from streamflow_io.files import file_of
from streamflow_io.hints.cwl import CWLObject, Walk
from streamflow_io.hints.errors import HintError
from streamflow_io.nested import parts

# In the order in which cwl_utils looks for them; docker runs an image with Node.js.
_ENGINES = ("nodejs", "node", "docker")
# Parameter references need no JavaScript.
_REFERENCE = re.compile(r"""\$\((?:inputs|self|runtime)(?:\.\w+|\['[^']*'\]|\["[^"]*"\]|\[\d+\])*\)""")
_EXPRESSION = re.compile(r"(?<!\\)\$[({]")


def find_engine() -> str | None:
    """Return the program that evaluates JavaScript, if there is one."""
    return next((path for name in _ENGINES if (path := shutil.which(name)) is not None), None)


def missing_engine(walk: Walk) -> list[HintError]:
    """Return at most one warning: a process needs Node.js, and there is none."""
    if find_engine() is not None:
        return []
    user = next((path for path, element in walk.expressive if _needs_javascript(element)), None)
    if user is None:
        return []
    file = file_of(walk.uri)
    message = f"{user} has JavaScript, and there is no Node.js on this machine, where StreamFlow evaluates it"
    return [HintError(file, None, "InlineJavascriptRequirement", message, f"one of {', '.join(_ENGINES)} on PATH")]


def _needs_javascript(element: CWLObject) -> bool:
    if hasattr(element, "run"):
        texts = [getattr(element, "when", None), *(target.valueFrom for target in element.in_)]
    else:
        texts = list(parts(element.save(top=False)))
    return any(isinstance(text, str) and _EXPRESSION.search(_REFERENCE.sub("", text)) for text in texts)
