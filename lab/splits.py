"""Workflows that split a file, and read its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.cwl import Document, streamable, tool
from lab.runs import Bench

LINES = [f"line {number} {'x' * (number % 7)}\n" for number in range(40)]


def count(kind: Any = "File") -> Document:
    """A tool that reads one part."""
    return tool(
        'note "count $(ls -ld "$chunk" | cut -c1)"; cat "$chunk" | { wc -l; }; cat "$chunk"; basename "$chunk"',
        {"chunk": kind},
        {"counted": "stdout"},
        stdout="$(inputs.chunk.nameroot).counted",
    )


def counted(each: int = 14) -> dict[str, bytes]:
    """The files that jobs of :func:`count` make of :data:`LINES`."""
    parts = [LINES[start : start + each] for start in range(0, len(LINES), each)]
    return {
        f"chunk-{number:02d}.counted": f"{len(part)}\n{''.join(part)}chunk-{number:02d}.txt\n".encode()
        for number, part in enumerate(parts)
    }


def fifo() -> Document:
    """A tool that reads one part front to back."""
    script = 'exec 3< "$chunk"; test -p /dev/fd/3 && note count fifo; cat <&3'
    return tool(script, {"chunk": streamable()}, {"counted": "stdout"}, stdout="counted.txt")


def stdin() -> Document:
    """A tool that reads one part from its standard input."""
    return tool("note count; cat", {"chunk": "stdin"}, {"counted": "stdout"}, stdout="counted.txt")


def job(directory: Path, each: int = 14, text: str = "".join(LINES)) -> dict[str, Any]:
    (directory / "reads.txt").write_text(text)
    return {"reads": {"class": "File", "path": str(directory / "reads.txt")}, "each": each}


def written(bench: Bench) -> list[str]:
    """The files that splits have written in our run."""
    run = bench.directory / f"run{bench.count}"
    return sorted(path.name for path in (run / "tmp").rglob("chunk-*.txt") if not path.is_symlink())
