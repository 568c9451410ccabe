"""Refusals of other programs, made one message."""

from __future__ import annotations

import pytest
from schema_salad.exceptions import ValidationException
from streamflow.core.exception import WorkflowDefinitionException

from streamflow_io.errors import said


def test_the_reason_of_an_error_without_a_text_is_its_cause() -> None:
    """StreamFlow raises such an error for types that do not fit together."""
    with pytest.raises(WorkflowDefinitionException) as raised:
        raise WorkflowDefinitionException from ValidationException("Source 'x' is incompatible")
    assert said(raised.value) == "Source 'x' is incompatible"
    assert said(WorkflowDefinitionException()) == "WorkflowDefinitionException, without a reason"
