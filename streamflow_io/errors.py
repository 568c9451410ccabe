"""Errors of libraries that refuse a user's text, as one message without a stack trace."""

from __future__ import annotations

import traceback
from pathlib import Path

from cwl_utils.errors import GraphTargetMissingException
from schema_salad.exceptions import ValidationException
from streamflow.core.exception import WorkflowException

_OURS = Path(__file__).resolve().parent
_LONGEST = 2000
#: What to do where cwltool, of the extra `validate`, is missing.
WITH_CWLTOOL = "install cwltool (pip install cwltool)"
# What these say needs no name of its kind.
_FOR_PEOPLE = (ValidationException, WorkflowException, GraphTargetMissingException, OSError)


def is_ours(error: BaseException) -> bool:
    """Whether an error was raised by our own code: then it is for us to mend, with its stack trace."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _OURS in Path(frames[-1].filename).resolve().parents


def said(error: BaseException) -> str:
    """Return the text of an error, for people."""
    text = str(error).strip()
    if not text and error.__cause__ is not None:
        return said(error.__cause__)
    if isinstance(error, RecursionError):
        text = "it is nested too deep, or it runs itself"
    elif not isinstance(error, _FOR_PEOPLE) or not text:
        text = f"{type(error).__name__}: {text}" if text else f"{type(error).__name__}, without a reason"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
