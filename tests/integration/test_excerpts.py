"""The first bytes of a file in real runs: what they prove, and what they leave to all of it."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document
from lab.runs import Bench
from streamflow_io.records.learned.database import default_path
from streamflow_io.records.learned.proofs import known_proofs
from tests.integration.test_rehearsals import ALIGNED, consumers, python, reader

pytestmark = pytest.mark.usefixtures("own_data")


#: Readers that do the same with the first bytes of a stream and of a file.
SAME = {
    "cat": reader('cat "$text" > out'),
    "count": reader("wc -l > out", stdin="$(inputs.text.path)"),
    "named": reader('{ pwd; echo "$text" "$TMPDIR"; wc -l < "$text"; } > out'),
}
_LOOKS = "import os, sys; f = os.open(sys.argv[1], 0)\ntry: end = os.lseek(f, {}, 2)\nexcept OSError: end = 0\n"
_COUNTS = "n = 0\nwhile d := os.read(f, 1 << 16): n += len(d)\n"
#: Readers that look at the beginning of a file before they read it, and do without where there are no places.
LOOKING = {
    "first": python(
        "import os, sys; f = os.open(sys.argv[1], 0)\ntry: os.pread(f, 9, 0)\nexcept OSError: pass\n"
        + _COUNTS
        + "print(n)"
    ),
}
#: What the first bytes must not prove; and how each reads a stream.
OTHER: dict[str, tuple[Document, str | None]] = {
    "early": (reader('head -n 3 "$text" > out'), "net"),
    "size": (python("import os, sys; f = open(sys.argv[1]); f.read(); print(os.fstat(f.fileno()).st_size)"), None),
    # As a pipe, and as a file with little in it.
    "large": (
        python(
            "import os, sys; f = open(sys.argv[1]); n = len(f.read()); print(n, os.fstat(f.fileno()).st_size > 100_000)"
        ),
        None,
    ),
    # The same by its end.
    "end": (
        python(_LOOKS.format(0) + "if end: os.lseek(f, 0, 0)\n" + _COUNTS + "print(n, end > 100_000)"),
        None,
    ),
    # The tool does without the end of a pipe, and an excerpt has another end.
    "last": (
        python(_LOOKS.format(-1) + "if end: os.read(f, 1); os.lseek(f, 0, 0)\n" + _COUNTS + "print(n)"),
        "pipe",
    ),
    "aligned": (ALIGNED, None),
    # The trailer of a large file.
    "trailer": (
        python(
            "import os, sys; f = os.open(sys.argv[1], 0); n = os.fstat(f).st_size\n"
            "end = os.pread(f, 9, n - 9) if n else 0; print(end)\nwhile os.read(f, 1 << 16): pass"
        ),
        None,
    ),
    # The reader says nothing of the cut, and makes nothing of it.
    "whole": (
        python('import sys; lines = open(sys.argv[1]).read().split()\nif lines[-1] == "30000": print(len(lines))'),
        "net",
    ),
}


def test_the_first_bytes_prove_and_never_refuse(bench: Bench) -> None:
    tools = {**SAME, **LOOKING, **{name: each for name, (each, _) in OTHER.items()}}
    bench.program = "streamflow excerpting"
    path = bench.write(consumers(bench, tools), {}, io=True, config={"streaming": "auto"})
    ended = bench.finish(bench.start(path), path, 300)
    assert ended.ok, ended.errors
    assert bench.leftovers() == []
    records: dict[str, Any] = {
        record["step"].strip("/"): record for record in bench.telemetry() if record["event"] == "rehearsed"
    }
    proven = {**dict.fromkeys(SAME, "net"), **dict.fromkeys(LOOKING, "pipe")}
    assert {name: records[name].get("way") for name in proven} == proven
    assert all(0 < records[name]["excerpt"] < records[name]["bytes"] / 2 for name in proven)
    assert {name: records[name].get("way") for name in OTHER} == {name: way for name, (_, way) in OTHER.items()}
    assert not any(records[name].get("excerpt") for name in OTHER)
    proofs = {proof.step.strip("/"): proof for proof in known_proofs(default_path())}
    assert {name for name, proof in proofs.items() if proof.excerpt is not None} == set(proven)
    assert ended.log.count("proven with the first 33.3 kB") == len(proven)
    again = bench.finish(bench.start(path), path, 300)
    assert again.ok, again.errors
    # What was tried as a pipe is one up to there, and under the net after it.
    # One says where it is.
    made, remade = (
        {name: file["checksum"] for name, file in run.outputs.items() if name != "named"} for run in (ended, again)
    )
    assert remade == made
    streamed = {record["step"].strip("/") for record in bench.telemetry() if record["event"] == "streamed"}
    assert set(proven) <= streamed


def test_who_is_given_up_may_have_ended_well(bench: Bench) -> None:
    bench.program = "streamflow giving up late"
    path = bench.write(consumers(bench, LOOKING), {}, io=True, config={"streaming": "auto"})
    ended = bench.finish(bench.start(path), path, 300)
    assert ended.ok, ended.errors
    [rehearsed] = [record for record in bench.telemetry() if record["event"] == "rehearsed"]
    assert (rehearsed["way"], "excerpt" in rehearsed) == ("pipe", True)
