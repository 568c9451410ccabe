"""Lookups whose cost does not grow with the number of jobs find what StreamFlow's find."""

from __future__ import annotations

import pytest
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Job, Status, Token
from streamflow.workflow.token import JobToken, ListToken, TerminationToken
from streamflow.workflow.utils import get_job_token, get_token_value

from streamflow_io import _streamflow
from streamflow_io._streamflow import JobTokens, find_job_token, token_value


def job_token(name: str) -> JobToken:
    return JobToken(Job(name, 1, {}, None, None, None))


def test_job_tokens() -> None:
    # A job that is scheduled again has a second token.
    tokens = [Token("a"), *map(job_token, ("/s/0", "/s/1", "/s/0")), TerminationToken(Status.COMPLETED)]
    indexed = JobTokens(tokens[:2])
    for token in tokens[2:]:
        indexed.append(token)
    assert indexed == tokens
    for name in ("/s/0", "/s/1"):
        assert find_job_token(name, indexed) is find_job_token(name, tokens) is get_job_token(name, tokens)
    with pytest.raises(WorkflowExecutionException, match="/s/2"):
        find_job_token("/s/2", indexed)


def test_token_values() -> None:
    lists = [ListToken([Token(i) for i in range(start, start + size)]) for start, size in ((0, 3), (0, 99), (1, 99))]
    for _ in range(2):
        for token in (Token("a"), *lists):
            assert token_value(token) == get_token_value(token)
    # The value of a long list is made once for all of its elements, and each job has a list of its own.
    made = token_value(lists[2])
    kept = _streamflow._last_list
    assert token_value(lists[2]) == made
    assert token_value(lists[2]) is not made
    assert _streamflow._last_list is kept
    assert len(lists[2].value) > _streamflow._SHORT
