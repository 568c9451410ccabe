"""Checks the English of docstrings, comments and texts for users, in Python and in Rust, and of pages in Markdown.

`python -m scripts.english [PATH ...]` prints each place that breaks a rule. Rules are about the beginning of a text,
the length of sentences, pronouns, the effect of None, and the head of a file. Texts for users are the literals of
several words in both programs: messages, their explanations in `messages/explanations.yml`, and descriptions of
options. Of a page, code blocks and tables are left out, and each sentence begins with a noun or a verb.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

#: Words of one sentence, at most.
LONGEST = 25
# Words of a literal that is a text, at least.
_FEWEST = 4

#: Columns of one line of a page, at most.
WIDEST = 120

#: All pages of the repository.
PAGES = ("*.md", ".github/**/*.md", "cwl-extensions/*.md", "docs/*.md", "tests/**/*.md", "workflows/**/*.md")

#: The explanations of the codes of messages.
EXPLANATIONS = "streamflow_io/messages/explanations.yml"
_ROOTS = ("streamflow_io", "node/src", "scripts", "benchmarks", "lab", "tests")
_FIRST = re.compile(
    r"(It|Its|They|Them|Their|This|That|That's|Those|These|Such|So|Who|Whose|What|Which|Whom|Of|As|None|Nobody|Somebody|"
    r"Well|Then|Else|And|Or|But)\b"
)
_FIRST_OF_PAGE = re.compile(
    r"(It|Its|They|Them|Their|That|Those|Who|Whose|Whom|Which|None|Nobody|Somebody|Well|Else|And|Or|But|So|"
    r"This (?:is|was|has|can|may|does|holds|needs|costs|happens|works|takes|means))\b"
)
_FIRST_OF_COMMENT = re.compile(r"(It|Its|They|Them|Their|Those|Whose)\b")
#: The beginnings that no sentence of an explanation may have.
_BEGINS = re.compile(r"(It|Its|They|Them|Their|That|That's|Those|These|Such|Nobody|Somebody|And|Or|But)\b")
_PRONOUN = re.compile(
    r"\b(who|whom|somebody|someone|nobody|anybody|everybody|so many|so much|that which|those which|of which|of whom|"
    r"of what|what there is|his|her|he|she)\b",
    re.IGNORECASE,
)
_HEAD = re.compile(r"\b(Pure|Adapter|Adapters|Edge)[.:]")
_NONE = re.compile(r"\bNone: (it|that|they|there|this|not|none|nobody|somebody|as|so)\b")
_FIELD = re.compile(r"^\s*:(?:param|ivar|return|returns|raises|cvar|type)\b[^:]*: ?", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^()\s]+\)")
_EMPHASIS = re.compile(r"\*+(?=\S)|(?<=\S)\*+")
# A comment, a character, or the text of a literal.
_RUST = re.compile(r'//[^\n]*|\'(?:\\.|[^\\\'])\'|"((?:[^"\\]|\\.)*)"', re.DOTALL)
_RUST_TESTS = "#[cfg(test)]\nmod tests"


@dataclass(frozen=True)
class Text:
    """A docstring, the lines of one comment, a text for users, or a paragraph of a page.

    :ivar line: where the text begins in its file, from 1
    :ivar kind: `head` of a file, `docstring`, `comment`, `message`, `explanation` or `quote` of one, or `page`
    """

    path: Path
    line: int
    kind: str
    text: str


@dataclass(frozen=True)
class Finding:
    """A rule that a text breaks."""

    text: Text
    reason: str

    def __str__(self) -> str:
        """The finding as one line: place, reason, the beginning of the text."""
        return f"{self.text.path}:{self.text.line}: {self.reason}"


def findings(text: Text) -> Iterator[Finding]:
    """Yield each rule that a text breaks."""
    plain = _CODE.sub("X", text.text)
    if text.kind == "page":
        plain = _EMPHASIS.sub("", _LINK.sub(r"\1", plain))
    if text.kind == "head" and (match := _HEAD.search(plain)):
        yield Finding(text, f'the head of a file does not say "{match[1]}": its folder does')
    if text.kind == "page":
        yield from _findings_of_page(text, plain)
    begins = [_FIRST.match(plain)] if text.kind in ("head", "docstring", "explanation") else []
    if text.kind == "comment":
        begins.append(_FIRST_OF_COMMENT.match(plain))
    if text.kind == "explanation":
        begins += map(_BEGINS.match, sentences(plain)[1:])
    for match in filter(None, begins):
        yield Finding(text, f'begin with a verb or a noun of the domain, not with "{match[1]}"')
    for match in _PRONOUN.finditer(plain):
        yield Finding(text, f'"{match[1]}": name the thing or the person')
    for match in _NONE.finditer(plain):
        yield Finding(text, f'"{match[0]}": say what None causes')
    for sentence in sentences(plain):
        if (count := len(sentence.split())) > LONGEST:
            yield Finding(
                text, f"{count} words in one sentence, at most {LONGEST}: {' '.join(sentence.split()[:6])} ..."
            )


def _findings_of_page(text: Text, plain: str) -> Iterator[Finding]:
    """Yield the rules of pages alone that a paragraph breaks."""
    for sentence in sentences(plain):
        if match := _FIRST_OF_PAGE.match(sentence):
            yield Finding(text, f'a sentence begins with "{match[1]}": name the thing')
    # A full address cannot be broken.
    for line in re.sub(r"\(https://[^()\s]+\)", "()", text.text).splitlines():
        if len(line) > WIDEST:
            yield Finding(text, f"{len(line)} columns in one line, at most {WIDEST}: {line[:40]} ...")


def sentences(text: str) -> list[str]:
    """The sentences of a text; a description of a parameter, an item of a list and a block each begin a new one."""
    pieces = re.split(r"\n\s*\n", _ITEM.sub("\n\n", _FIELD.sub("\n\n", text)))
    return [sentence for piece in pieces for sentence in re.split(r"(?<=[.!?;:])\s+", piece.strip()) if sentence]


def python_texts(path: Path, source: str) -> Iterator[Text]:
    """Yield the docstrings of a Python file, and its comments."""
    for node in _definitions(ast.parse(source)):
        if (docstring := ast.get_docstring(node)) is not None:
            yield Text(path, node.body[0].lineno, "head" if isinstance(node, ast.Module) else "docstring", docstring)
    lines = [
        (token.start[0], token.start[1], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
        and not re.match(r"#!|# (type|noqa|fmt|ruff|mypy|pragma|pylint)\b", token.string)
    ]
    yield from _blocks(path, [(line, column, text.lstrip("#: ")) for line, column, text in lines], "comment")


def _definitions(
    node: ast.AST,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the module, classes and functions: those are statements, and no expression holds a statement."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(child)


def user_texts(path: Path, source: str) -> Iterator[Text]:
    """Yield the texts for users in a Python file of the program."""
    if "streamflow_io" not in path.parts:
        return
    for node, text in _literals(ast.parse(source)):
        if len(text.split()) >= _FEWEST and "\n" not in text:
            yield Text(path, node.lineno, "message", text)


def _literals(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield the text literals below a node, and their texts; docstrings are none."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        yield node, "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _literals(child)


def explanation_texts(path: Path, source: str) -> Iterator[Text]:
    """Yield the texts of the explanations of codes."""
    for explanation in YAML().load(source).values():
        for part in (explanation, *explanation["cases"]):
            for key in ("title", "why", "message", "to_do"):
                if key in part:
                    line = part.lc.key(key)[0] + 1
                    yield Text(path, line, "quote" if key == "message" else "explanation", str(part[key]))


def rust_texts(path: Path, source: str) -> Iterator[Text]:
    """Yield the comments of a Rust file: documentation (`///`, `//!`) and others."""
    for kind, sign in (("head", "//!"), ("docstring", "///"), ("comment", "//")):
        found = []
        for number, line in enumerate(source.splitlines(), 1):
            if match := re.match(rf"(\s*){re.escape(sign)}(?![/!])\s?(.*)", line):
                found.append((number, len(match[1]), match[2]))
        yield from _blocks(path, found, kind)


def rust_messages(path: Path, source: str) -> Iterator[Text]:
    """Yield the texts for users in a Rust file, without those of its tests."""
    program = source.split(_RUST_TESTS, maxsplit=1)[0]
    for match in _RUST.finditer(program):
        text = re.sub(r"\{[^{}]*\}", "X", re.sub(r"\\\n\s*", "", match[1] or ""))
        if len(text.split()) >= _FEWEST and "\n" not in text:
            yield Text(path, program.count("\n", 0, match.start()) + 1, "message", text)


def markdown_texts(path: Path, source: str) -> Iterator[Text]:
    """Yield the paragraphs and items of a page, without headings, tables, blocks of code and targets of links."""
    start, lines, fence = 0, list[str](), ""
    for number, line in enumerate([*source.splitlines(), ""], 1):
        mark = re.match(r"\s*(`{3,})", line)
        if fence:
            fence = "" if mark and mark[1] == fence else fence
            continue
        if lines and (mark or not line.strip() or re.match(r"\s*\||#{1,6} ", line) or _ITEM.match(line)):
            yield Text(path, start, "page", "\n".join(lines))
            lines = []
        if mark:
            fence = mark[1]
        elif line.strip() and not re.match(r"\s*\||#{1,6} ", line):
            start = start if lines else number
            lines.append(line)


def _blocks(path: Path, lines: list[tuple[int, int, str]], kind: str) -> Iterator[Text]:
    """Join lines that follow each other in the same column."""
    start, last, column, texts = 0, -1, -1, list[str]()
    for line, here, text in lines:
        if texts and (line != last + 1 or here != column):
            yield Text(path, start, kind, "\n".join(texts))
            texts = []
        if not texts:
            start = line
        texts.append(text)
        last, column = line, here
    if texts:
        yield Text(path, start, kind, "\n".join(texts))


_TEXTS = {
    ".py": (python_texts, user_texts),
    ".rs": (rust_texts, rust_messages),
    ".md": (markdown_texts,),
    ".yml": (explanation_texts,),
}


def check(paths: list[Path]) -> list[Finding]:
    """Check all Python and Rust files below some paths, and pages.

    :raises OSError: if a file cannot be read
    :raises SyntaxError: if a Python file cannot be parsed
    """
    found: list[Finding] = []
    for root in paths:
        files = sorted((*root.rglob("*.py"), *root.rglob("*.rs"))) if root.is_dir() else [root]
        for path in files:
            source = path.read_text()
            found += (
                finding for kind in _TEXTS[path.suffix] for text in kind(path, source) for finding in findings(text)
            )
    return found


if __name__ == "__main__":
    here = Path()
    pages = sorted(str(page) for pattern in PAGES for page in here.glob(pattern))
    broken = check([Path(argument) for argument in sys.argv[1:] or (*_ROOTS, *pages, EXPLANATIONS)])
    for finding in broken:
        print(finding)
    raise SystemExit(1 if broken else 0)
