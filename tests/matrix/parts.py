"""The commands for a program of the matrix: a producer and a consumer, and what they need."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.building import Workshop
from tests.matrix.data import DATA
from tests.matrix.directories import EXPLORE, SLOW_DIRECTORY
from tests.matrix.programs import SHELL, Filler, Limit, Producer, Program, Walker


@dataclass(frozen=True)
class Part:
    """A producer or a consumer, ready to be run in a directory of its own."""

    command: tuple[str, ...]
    #: The producer's file below ``out``, or the name below ``in`` at which the consumer finds it.
    name: str
    stdin: bool = False


@dataclass(frozen=True)
class Plan:
    """The two parts of a case, and how the producer's output is described."""

    producer: Part
    consumer: Part
    globs: tuple[str, ...]
    kind: str
    closes: int = 1
    #: The producer goes on after its commit, until its consumer has ended.
    stays: bool = True
    #: The program of the table is the producer, not the consumer.
    writes: bool = False

    @property
    def tried(self) -> Part:
        """The program of the table; the other one is its counterpart."""
        return self.producer if self.writes else self.consumer


def plan(program: Program) -> Plan:
    """Returns the two parts for a program of the table; its counterpart is a plain one."""
    command = (*program.interpreter, program.script)
    if isinstance(program, Producer):
        globs = program.globs or (program.file,)
        reader = Part((*SHELL, program.then), program.file)
        kind = "files" if program.globs else "file"
        return Plan(Part(command, program.file), reader, globs, kind, program.closes, not program.never_closed, True)
    if isinstance(program, Filler):
        return Plan(Part(command, "d"), Part((*SHELL, EXPLORE), "d"), ("d",), "directory", writes=True)
    if isinstance(program, Walker):
        return Plan(Part((*SHELL, SLOW_DIRECTORY), "d"), Part(command, "d"), ("d",), "directory")
    file = DATA[program.data].file
    # A file that is executed has to be executable from the start.
    mode, closes = (f": > out/{file}; chmod 755 out/{file}; ", 2) if program.data == "script" else ("", 1)
    write = f'{mode}slow "$DATA/{file}" > out/{shlex.quote(file)}'
    return Plan(Part((*SHELL, write), file), Part(command, file, program.stdin), (file,), "file", closes)


def prepare(workshop: Workshop, program: Program) -> None:
    """Builds what a program needs.

    :raises MissingError: when something is not on this machine.
    """
    for tool in ("slow", *program.needs):
        workshop.tool(tool)
    workshop.input("words")
    if isinstance(program, Walker):
        workshop.input("directory")
    else:
        workshop.input(program.data)
    for name, built in DATA.items():
        if f"$DATA/{built.file}" in program.script:
            workshop.input(name)


def environment(workshop: Workshop, name: str, control: Path) -> dict[str, str]:
    controls = {"GO": str(control / "go"), "END": str(control / "end")}
    return {**workshop.environment(), **controls, "IN": f"in/{name}"}


def limit_field(limit: Limit, place: Path) -> dict[str, object]:
    """The field of `job.json` of a program that works in a directory."""
    # Where nothing is stored, the bytes of system calls count.
    direction, path = ("write", str(place)) if limit.storage else ("both", "/proc")
    return {"rate": limit.rate, "direction": direction, "path": path}
