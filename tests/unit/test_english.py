"""The lint of the English in docstrings, comments and texts for users finds what its rules forbid, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.english import (
    PAGES,
    Text,
    check,
    findings,
    markdown_texts,
    python_texts,
    rust_texts,
    sentences,
    user_texts,
)

_REPOSITORY = Path(__file__).parents[2]
_PATH = Path("module.py")
_LONG = " ".join(["word"] * 26)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("docstring", "What a job reads."),
        ("docstring", "Its arguments."),
        ("docstring", "Find a reader who waits."),
        ("comment", "Nobody reads this file."),
        ("docstring", "Count the bytes.\n\n:param size: bytes; None: it is not known"),
        ("docstring", f"{_LONG}."),
        ("head", "Adapter: jobs of StreamFlow."),
        ("page", f"{_LONG}.".replace(" ", "\n")),
        ("page", "A job starts. It reads a file."),
        ("page", "A reader gets the file. This is slow."),
        ("page", "Ask a job who reads the file."),
        ("page", "**They** wait."),
        ("page", "x" * 121),
        ("explanation", "The file is complete. It streams."),
        ("quote", "nobody has opened the stream"),
        ("message", f"{_LONG} (default: 4)"),
    ],
)
def test_broken(kind: str, text: str) -> None:
    """Each rule is broken by one text."""
    assert len(list(findings(Text(_PATH, 1, kind, text)))) == 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("docstring", "Whether the original job has succeeded."),
        ("comment", "What follows is read once."),
        ("docstring", "Count the bytes.\n\n:param size: bytes; None: count until the end of the file"),
        ("docstring", f"`{_LONG}` is one word."),
        ("docstring", f"First:\n\n- {' '.join(['word'] * 20)}\n- {' '.join(['word'] * 20)}"),
        ("docstring", "Start the adapter of a queue manager."),
        ("page", f"See [this page](https://example.org/{'x' * 120})."),
        ("page", "What follows is read once. This file is closed."),
        ("quote", "the tool seeks in the file"),
        ("message", "its write bandwidth of now"),
    ],
)
def test_plain(kind: str, text: str) -> None:
    """A plain text breaks no rule."""
    assert list(findings(Text(_PATH, 1, kind, text))) == []


def test_sentences_end_at_fields() -> None:
    """The description of a parameter is a sentence of its own."""
    assert sentences("Count.\n\n:param size: of a file\n:return: the number") == ["Count.", "of a file", "the number"]


def test_python() -> None:
    """Docstrings and comments are found with their lines; marks for tools are none."""
    source = '"""Head."""\n\nimport os  # noqa: F401\n\n# One\n# comment.\n\n\ndef f() -> None:\n    """Do."""\n'
    found = [(text.line, text.kind, text.text) for text in python_texts(_PATH, source)]
    assert found == [(1, "head", "Head."), (10, "docstring", "Do."), (5, "comment", "One\ncomment.")]


def test_rust() -> None:
    """The three kinds of comments are told apart."""
    source = "//! Head.\n\n/// Does one\n/// thing.\nfn f() {\n    // Why.\n}\n"
    found = [(text.line, text.kind, text.text) for text in rust_texts(Path("a.rs"), source)]
    assert found == [(1, "head", "Head."), (3, "docstring", "Does one\nthing."), (6, "comment", "Why.")]


def test_markdown() -> None:
    """Paragraphs and items are found with their lines; headings, tables and blocks of code are left out."""
    source = "# It\n\nOne\ntwo.\n\n```sh\nit\n```\n| it | they |\n|---|---|\n\n- First\n  more\n- Second\n"
    found = [(text.line, text.text) for text in markdown_texts(Path("a.md"), source)]
    assert found == [(3, "One\ntwo."), (12, "- First\n  more"), (14, "- Second")]


@pytest.mark.parametrize("page", PAGES)
def test_pages(page: str) -> None:
    """The pages that are in plain English stay so."""
    assert list(map(str, check([_REPOSITORY / page]))) == []


def test_messages() -> None:
    """Literals of several words are texts for users; docstrings, words and scripts are not."""
    source = '"""The head of it."""\nprint(f"no file is in {PATH}", "a file", "for all of\\nthem do")\n'
    found = [(text.line, text.kind, text.text) for text in user_texts(Path("streamflow_io/module.py"), source)]
    assert found == [(2, "message", "no file is in X")]
    assert list(user_texts(Path("tests/module.py"), source)) == []


def test_explanations() -> None:
    """In `messages/of_*.py`, all text counts, and messages that are quoted are told apart."""
    source = '"""Head."""\n_A = "Wait."\nX = Case("it waits", f"Try {A}.")\n'
    path = Path("streamflow_io/messages/of_runs.py")
    found = [(text.line, text.kind, text.text) for text in user_texts(path, source)]
    assert found == [(2, "explanation", "Wait."), (3, "quote", "it waits"), (3, "explanation", "Try X.")]
