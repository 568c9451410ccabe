"""A command is split into the words that `shlex.split` finds."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamflow_io._streamflow import split_words

TEXTS = st.text(alphabet=" \t\n\v\u00a0'\"\\#$ab&", max_size=20)


@given(TEXTS)
@example("a'b'\"c\" '' \"\"")
def test_any_text_has_the_words_of_shlex(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        with pytest.raises(ValueError, match="No "):
            split_words(text)
    else:
        assert split_words(text) == expected


@given(TEXTS)
def test_a_quoted_command_is_one_word(command: str) -> None:
    assert split_words(f"/bin/sh -c {shlex.quote(command)}") == ["/bin/sh", "-c", command]
