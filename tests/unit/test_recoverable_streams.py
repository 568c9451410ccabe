"""Streams among the values that StreamFlow calls recoverable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.context import StreamFlowContext
from streamflow.core.persistence import Database
from streamflow.workflow.token import ListToken, ObjectToken

from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value


def stream() -> StreamToken:
    return StreamToken(file_value("/out/o"), StreamSource("/a/0", "o", "o"))


@pytest.mark.parametrize("make", [lambda of: of, lambda of: ListToken([of]), lambda of: ObjectToken({"f": of})])
async def test_streams_that_are_kept_go_to_an_optional_input(make: Any) -> None:
    """Whatever lists and records they are in, and these are kept, too. The stream is never available to recovery."""
    saved: list[bool] = []

    async def add_token(*, recoverable: bool, **fields: object) -> int:
        if fields["type"] is StreamToken:
            saved.append(recoverable)
        return len(saved) + 1

    inner = make(stream())
    await inner.save(cast(Database, SimpleNamespace(add_token=add_token)))
    for token in (inner, ListToken([inner])):
        token.recoverable = True
    assert saved == [False]
    assert not await inner.is_available(cast(StreamFlowContext, None))
