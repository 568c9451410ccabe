"""The lint of the English in docstrings, comments and texts for users finds what its rules forbid, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.english import (
    Text,
    explanation_texts,
    findings,
    rust_messages,
)

_PATH = Path("module.py")
_LONG = " ".join(["word"] * 26)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("docstring", "What a job reads."),
        ("docstring", "Its arguments."),
        ("docstring", "Find a reader who waits."),
        ("comment", "Nobody reads this file."),
        ("comment", "It has ended meanwhile."),
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


def test_texts_of_explanations() -> None:
    text = (
        "SFIO-S001:\n  title: One\n  why: Two\n  cases:\n    - message: m\n      to_do: >-\n        Three\n        four"
    )
    found = [(each.line, each.kind, each.text) for each in explanation_texts(Path("explanations.yml"), text)]
    assert found == [
        (2, "explanation", "One"),
        (3, "explanation", "Two"),
        (5, "quote", "m"),
        (6, "explanation", "Three four"),
    ]


def test_texts_of_rust() -> None:
    """Only literals of several words are texts for users, and only those outside of comments and tests."""
    source = (
        '// it is "read by a person"\n'
        "let quote = '\"';\n"
        'let message = format!("cannot read {} \\\n    of the job", path);\n'
        'let short = "two words";\n'
        '#[cfg(test)]\nmod tests { const TEXT: &str = "a text of a test"; }\n'
    )
    found = [(each.line, each.kind, each.text) for each in rust_messages(Path("module.rs"), source)]
    assert found == [(3, "message", "cannot read X of the job")]
