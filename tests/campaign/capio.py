"""The workflow of the trials with CAPIO itself, and what a run may have left of it."""

from __future__ import annotations

import sys

from lab.cwl import Document, found, streamable, tool, workflow
from lab.installed_capio import SHARED, left_in_shared_memory, shared_memory_of

#: The name of the workflow; nothing else is tried with CAPIO.
CAPIO = "capio"
#: Its jobs take longer than those of other workflows, because the server is started among them.
CAPIO_SPAN = 5.0
#: From the fault to the end of the run.
CAPIO_SECONDS = 30.0
# No shells: CAPIO does not serve them. What is noted is as in the other workflows.
_PRELUDE = """
import hashlib, os, sys, time
def taken(name, data):
    with open(os.environ["TRACE"], "a") as trace:
        print(time.time(), "read", name, len(data), hashlib.sha1(data).hexdigest(), file=trace)
"""
# CAPIO's library gathers what is written: only this many bytes make it pass them on while a job runs.
_LINES = "b''.join(b'%08d of the part\\n' % n for n in range(turn * 20_000, turn * 20_000 + 20_000))"
_MAKE = f"""
with open("first.txt", "wb", buffering=0) as first, open("second.txt", "wb", buffering=0) as second:
    for turn in range(20):
        first.write({_LINES})
        second.write({_LINES.replace("part", "rest")})
        time.sleep(0.15)
"""
_SHIFT = """
with open(os.environ["file"], "rb", buffering=0) as source, open("shifted.txt", "wb", buffering=0) as out:
    while data := source.read(1 << 18):
        out.write(data.swapcase())
"""
_READ = """
data = source.read(99_999)
time.sleep(0.3)
data += source.read()
taken({name!r}, data)
print(len(data), data[-100:])
"""


def capio_streams() -> Document:
    """One producer of two files, with a second step behind one; a reader of each, and a reader of a plain file."""
    by_path = "source = open(os.environ['file'], 'rb')\n"
    read_second = _program(
        "source = sys.stdin.buffer" + _READ.format(name="second"), "CONSUMER", {"file": streamable()},
        {"out": "stdout"}, stdin="$(inputs.file.path)", stdout="second.txt",
    )  # fmt: skip
    steps: dict[str, Document] = {
        "make": {
            "run": _program(_MAKE, "PRODUCER", {}, {name: _streamed(f"{name}.txt") for name in ("first", "second")}),
            "in": {},
        },
        "shift": {
            "run": _program(_SHIFT, "CONSUMER", {"file": streamable()}, {"out": _streamed("shifted.txt")}),
            "in": {"file": "make/first"},
        },
        "read": {
            "run": _reader(by_path + _READ.format(name="first"), "first.out", streamable()),
            "in": {"file": "shift/out"},
        },
        "readsecond": {"run": read_second, "in": {"file": "make/second"}},
        "readlast": {"run": _reader(by_path + _READ.format(name="last"), "last.out"), "in": {"file": "read/out"}},
    }
    results = {"made": "make/first", "shifted": "shift/out", "last": "readlast/out", "second": "readsecond/out"}
    return workflow({}, steps, results)


def _streamed(name: str) -> Document:
    return streamable(**found(name))


def _reader(script: str, stdout: str, file: Document | str = "File") -> Document:
    return _program(script, "CONSUMER", {"file": file}, {"out": "stdout"}, stdout=stdout)


def _program(script: str, role: str, inputs: Document, outputs: Document, **fields: str) -> Document:
    """A tool that runs Python, and whose processes tell what they are by their environment."""
    made = {**tool("", inputs, outputs, **fields), "baseCommand": [sys.executable, "-ISc", _PRELUDE + script]}
    made["requirements"][0]["envDef"].append({"envName": f"CAMPAIGN_{role}", "envValue": "1"})
    return made


def left_by_capio(driver: int) -> list[str]:
    """Entries in shared memory of a run that is over: of its server, and of programs that have ended."""
    return sorted({str(SHARED / name) for name in (*shared_memory_of(driver), *left_in_shared_memory(0.0))})
