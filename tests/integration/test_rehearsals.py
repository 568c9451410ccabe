"""Rehearsals in real runs: what streams is proven, what does not is refused with a reason, and nothing is left."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab import forked
from lab.cwl import Document, found, tool, workflow
from lab.node import wait_for
from lab.processes import find_processes
from lab.runs import Bench, Run
from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.plan_proofs import prospects
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.database import default_path, known_entries
from streamflow_io.records.learned.proofs import InconclusiveRehearsal, Proof, known_proofs

#: More than a pipe holds at first.
LINES = 30_000
#: Steps that only wait leave the cores to others.
NO_CORE = [{"class": "ResourceRequirement", "coresMin": 0}]


pytestmark = pytest.mark.usefixtures("own_data")


def reader(script: str, **fields: Any) -> Document:
    """A tool that reads `$text`, and writes the file `out`."""
    return tool(script, {"text": "File"}, {"out": found("out")}, **fields)


def staging(name: str, entry: str) -> Document:
    return {"class": "InitialWorkDirRequirement", "listing": [{"entryname": name, "entry": entry}]}


def python(script: str) -> Document:
    return reader(f"{sys.executable} -ISc '{script}' \"$text\" > out")


#: A program that does something of its own with a short file, as `wc`, which aligns its numbers so.
ALIGNED = python(
    "import os, sys; f = open(sys.argv[1]); n = len(f.read())\nprint(n, 0 < os.fstat(f.fileno()).st_size < 9999)"
)


def consumers(bench: Bench, tools: Mapping[str, Document], count: int | None = None, **more: Document) -> Document:
    """A workflow with a file, its readers, and a step that waits until a number of inputs were rehearsed."""
    count = len(tools) if count is None else count
    runs = bench.data / "streamflow-io" / "runs"
    until = f"until [ $(cat {runs}/*/telemetry.jsonl | grep -c '\"rehearsed\"') -ge {count} ]; do sleep 0.1; done"
    waiting = tool(f"{until}; touch done", {}, {"done": found("done")}, requirements=NO_CORE)
    making = tool(f"seq {LINES} > out.txt", {}, {"text": found("out.txt")})
    steps: dict[str, Document] = {"make": {"run": making, "in": {}}, "wait": {"run": waiting, "in": {}}, **more}
    steps |= {name: {"run": each, "in": {"text": "make/text"}} for name, each in tools.items()}
    outputs = {f"{name}_{port}": f"{name}/{port}" for name in more for port in more[name]["run"]["outputs"]}
    return workflow({}, steps, {name: f"{name}/out" for name in tools} | {"done": "wait/done"} | outputs)


@cache
def has_landlock() -> bool:
    asks_for_version = 444, None, 0, 1
    return ctypes.CDLL(None).syscall(*asks_for_version) > 0


def start(bench: Bench, document: Document, **config: Any) -> tuple[forked.Driver, Path]:
    path = bench.write(document, {}, io=True, config={"streaming": "auto", **config})
    return bench.start(path), path


def run(bench: Bench, tools: Mapping[str, Document], **more: Any) -> Run:
    ended = bench.finish(*start(bench, consumers(bench, tools, **more)))
    assert ended.ok, ended.errors
    assert bench.leftovers() == []
    return ended


def rehearsed(bench: Bench) -> dict[str, tuple[str | None, str | None]]:
    """How each step reads a stream, and why not."""
    records = [record for record in bench.telemetry() if record["event"] == "rehearsed"]
    assert len({record["input"] for record in records}) == len(records), records
    return {record["step"].strip("/"): (record.get("way"), record.get("reason")) for record in records}


def proofs() -> dict[str, Proof]:
    return {proof.step.strip("/"): proof for proof in known_proofs(default_path())}


def test_what_streams_is_proven_and_leaves_no_trace(bench: Bench) -> None:
    tools = {
        "link": reader('cat "$text" > a; ln -s a out'),
        "cat": reader('cat "$text" > out'),
        "count": reader("wc -l > out", stdin="$(inputs.text.path)"),
        "find": reader('grep 7 "$text" > out'),
        "named": reader('{ pwd; echo "$text" "$TMPDIR"; wc -l < "$text"; } > out'),
        "first": reader('head -n 3 "$text" > out'),
        # The tool seeks if it can, and does without.
        "probe": python(
            'import sys; f = open(sys.argv[1], "rb", 0)\n'
            "try: f.seek(0, 2); f.seek(0)\n"
            "except OSError: pass\n"
            "print(len(f.read()))"
        ),
        "beside": reader('sh script < "$text" > out', requirements=[staging("script", "wc -l")]),
    }
    process, path = start(bench, consumers(bench, tools))
    ours = bench.finish(process, path)
    assert ours.ok, ours.errors
    assert bench.leftovers() == []
    assert rehearsed(bench) == {name: ("pipe" if name == "probe" else "net", None) for name in tools}
    assert {name: proof.way for name, proof in proofs().items()} == {
        name: "pipe" if name == "probe" else "net" for name in tools
    }
    # Each job was executed once, and no listener has heard of more.
    place = bench.directory / "run1"
    with contextlib.closing(sqlite3.connect(place / "streamflow.db")) as database:
        assert database.execute("SELECT count(*) FROM execution").fetchone() == (len(tools) + 2,)
    assert ours.log.count("EXECUTING step") == len(tools) + 2
    assert ours.log.count("may be read while it is written: proven") == len(tools)
    # A known result is not tried again: a run with the same values of all inputs waits for nothing.
    again = bench.finish(bench.start(path), path)
    assert again.ok, again.errors
    assert rehearsed(bench) == {}


def test_plan_says_what_was_tried_and_has_shown_nothing(bench: Bench) -> None:
    process, path = start(bench, consumers(bench, {"blind": reader("echo none > out")}))
    ended = bench.finish(process, path)
    assert ended.ok, ended.errors
    assert rehearsed(bench) == {"blind": (None, "the tool has not read the file")}
    [one] = [each for each in prospects(plan_file(path).plans["main"]) if each.input == "/blind/text"]
    tried = "it was tried, and nothing is known yet: the tool has not read the file"
    assert (one.state, one.reason) == ("unknown", coded(tried, Code.NOT_TRIED))


def test_a_file_that_its_job_removes_is_named(bench: Bench) -> None:
    run(bench, {"removes": reader('cat "$text" > out; rm "$text"')})
    [(way, reason)] = rehearsed(bench).values()
    assert way is None
    assert re.fullmatch(r"/\S+/out\.txt: No such file or directory", reason or ""), reason


def test_what_does_not_stream_is_refused_with_its_reason(bench: Bench) -> None:
    tools = {
        "size": python("import os, sys; print(os.fstat(os.open(sys.argv[1], 0)).st_size)"),
        "short": python("import os, sys; print(len(os.read(os.open(sys.argv[1], 0), 1 << 20)))"),
        "random": python("import random, sys; open(sys.argv[1]).read(); print(random.random())"),
        "seek": python('import sys; f = open(sys.argv[1], "rb"); print(f.seek(0, 2))'),
        "path": python("import os, sys; print(os.path.getsize(sys.argv[1]))"),
        # The tool seeks if it can, and otherwise takes a long pause for the end.
        "polls": python(
            'import select, sys; f = open(sys.argv[1], "rb", 0); n = 0\n'
            "try: f.seek(0, 2); f.seek(0)\n"
            "except OSError: pass\n"
            "while select.select([f], [], [], 60)[0] and (read := len(f.read(1 << 16))): n += read\n"
            "print(n)"
        ),
        # The kernel watches no file for it.
        "watches": python(
            'import select, sys; f = open(sys.argv[1], "rb", 0); e = select.epoll(); n = 0\n'
            "try: f.seek(0, 2); f.seek(0); n = len(f.read())\n"
            "except OSError:\n"
            " e.register(f)\n"
            " while e.poll(60) and (read := len(f.read(1 << 16))): n += read\n"
            "print(n)"
        ),
        "limited": reader('timeout 60 cat "$text" > out'),
        # A second time, it finds what it has made.
        "changes": reader('sed -i s/^1/one/ "$text"; cat "$text" > out'),
        "aligned": ALIGNED,
        "twice": reader('tail -c 9 "$text" > out; head -n 1 "$text" >> out'),
        "fails": python("import os, sys; f = os.open(sys.argv[1], 0); sys.exit(7 * (os.fstat(f).st_size == 0))"),
    }
    if has_landlock():
        tools["outside"] = reader('cat "$text" > out; : >> "$TRACE"')
    run(bench, tools)
    expected = {
        "size": "the outputs differ with a stream: out",
        "short": "the outputs differ with a stream: out",
        "random": "the outputs differ from run to run: out",
        "seek": "the tool seeks in the file",
        "path": "the tool asks for the size, or more, by the path",
        "polls": "the tool seeks in the file",
        "watches": "the tool seeks in the file",
        "limited": "the tool sets an alarm (timer_settime)",
        "changes": "the tool changes the file",
        "aligned": "the outputs differ with a short stream: out",
        "twice": "the tool seeks in the file",
        "fails": "exit code 7 with a stream",
    }
    if has_landlock():
        expected["outside"] = "the tool fails when it runs again: exit code 2"
    assert {name: reason for name, (_, reason) in rehearsed(bench).items()} == expected
    assert {name: (proof.way, proof.reason) for name, proof in proofs().items()} == {
        name: (None, reason) for name, reason in expected.items()
    }


def test_who_writes_the_date_is_proven(bench: Bench) -> None:
    """The outputs from a stream are the same but for moments of its own run, also in blocks of bgzip."""
    date, size = "$(date +%Y-%m-%dT%H:%M:%S.%N)", f"{sys.executable} -ISc 'import os; print(os.fstat(0).st_size)'"
    tools = {
        "text": reader(f'{{ echo "##Date={date}"; cat "$text"; }} > out'),
        "sized": reader(f'{{ echo "##Date={date}"; {size}; cat; }} > out', stdin="$(inputs.text.path)"),
        "whole": reader(f'{{ echo "##Date={date}"; cat "$text"; }} | gzip -c > out'),
    }
    if bgzip := shutil.which("bgzip"):
        tools["blocks"] = reader(f'{{ echo "##Date={date}"; cat "$text"; }} | {bgzip} -c > out')
    making = tool(f"seq {LINES} > out.txt", {}, {"text": found("out.txt")})
    if bcftools := shutil.which("bcftools"):
        header = "##fileformat=VCFv4.2\n##contig=<ID=1>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"
        variants = f'seq {LINES} | awk \'{{print "1\\t" $1 "\\t.\\tA\\tC\\t.\\tPASS\\t."}}\''
        making = tool(f"{{ printf '{header}\\n'; {variants}; }} > out.txt", {}, {"text": found("out.txt")})
        views = {
            "view": reader(f'sleep 1; {bcftools} view "$text" -o out'),
            "norm": reader(f'sleep 1; {bcftools} view -Oz "$text" -o out'),
        }
        tools |= views
    document = consumers(bench, tools)
    document["steps"]["make"]["run"] = making
    ended = bench.finish(*start(bench, document))
    assert ended.ok, ended.errors
    reasons = {name: reason for name, (_, reason) in rehearsed(bench).items() if reason is not None}
    assert reasons == {
        "sized": "the outputs differ with a stream: out",
        "whole": "the outputs differ from run to run: out",
    }
    assert {name for name, (way, _) in rehearsed(bench).items() if way is not None} == tools.keys() - reasons.keys()
    assert bench.leftovers() == []


def test_one_that_hangs_is_ended_and_proves_nothing(bench: Bench) -> None:
    script = (
        "import os, stat, sys, time; f = os.open(sys.argv[1], 0); time.sleep(999 * stat.S_ISFIFO(os.fstat(f).st_mode))"
    )
    bench.program = "streamflow impatient"
    run(bench, {"hang": python(script)})
    (found_out,) = rehearsed(bench).values()
    assert found_out[0] is None
    assert "has not ended after 2 s" in str(found_out[1])
    assert proofs() == {}


def test_of_a_scatter_one_job_is_rehearsed(bench: Bench) -> None:
    making = tool(f"seq $number {LINES} > out.txt", {"number": "int"}, {"text": found("out.txt")})
    steps = {
        "write": {"run": making, "in": {"number": "numbers"}, "scatter": "number"},
        "count": {"run": reader('wc -l < "$text" > out'), "in": {"text": "write/text"}, "scatter": "text"},
    }
    document = consumers(bench, {}, count=1)
    more = workflow({"numbers": "int[]"}, steps, {"counts": "count/out"})
    for part in ("inputs", "steps", "outputs"):
        document[part] |= more[part]
    path = bench.write(document, {"numbers": [1, 2, 3, 4]}, io=True, config={"streaming": "auto"})
    ended = bench.finish(bench.start(path), path)
    assert ended.ok, ended.errors
    assert rehearsed(bench) == {"count": ("net", None)}


def test_nobody_rehearses_who_does_not_want_to(bench: Bench) -> None:
    tools = {"cat": reader('cat "$text" > out; sleep 0.5')}
    waiting = {"run": tool("sleep 2; touch late", {}, {"late": found("late")}, requirements=NO_CORE), "in": {}}
    ended = bench.finish(*start(bench, consumers(bench, tools, count=0, late=waiting), rehearse="never"))
    assert ended.ok, ended.errors
    assert rehearsed(bench) == {}


#: Of this test's process, as the number of seconds that its slow tools take.
_SLOW = 10**7 + os.getpid()
#: Goes on for long, as far as it reads a stream: in a rehearsal.
SLOW = python(
    "import os, stat, sys; f = os.open(sys.argv[1], 0); print(len(os.read(f, 9)))\n"
    f'if stat.S_ISFIFO(os.fstat(f).st_mode): os.execlp("sleep", "sleep", "{_SLOW}")'
)
#: Succeeds while a rehearsal of it runs.
GOES_ON = f"grep -aqs 'slee[p].{_SLOW}' /proc/[0-9]*/cmdline"


def wait_for_rehearsal() -> list[Path]:
    """Wait until the slow tool is rehearsed; returns the directories of the rehearsal."""
    slow = re.compile(rb"^sleep\x00%d\x00$" % _SLOW)
    wait_for(lambda: find_processes("cmdline", slow), "a rehearsal", 60)
    (pid,) = find_processes("cmdline", slow)
    environment = dict(each.split("=", 1) for each in Path(f"/proc/{pid}/environ").read_text().split("\0") if each)
    directories = list(
        map(Path, json.loads(Path(environment["SFIO_JOB"], "job.json").read_text())["rehearsal"]["scratch"])
    )
    assert all(directory.is_dir() for directory in directories)
    return directories


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
def test_nothing_is_left_of_a_rehearsal_when_the_driver_ends(bench: Bench, number: signal.Signals) -> None:
    process, _ = start(bench, consumers(bench, {"slow": SLOW}))
    directories = wait_for_rehearsal()
    os.killpg(process.pid, number)
    process.wait(30)
    wait_for(lambda: bench.leftovers() == [], "the end of everything", 30)
    wait_for(lambda: not any(each.exists() for each in directories), "the removal of its directories")


def test_a_run_that_waits_for_rehearsals_can_be_interrupted(bench: Bench) -> None:
    auto = {"streaming": "auto", "rehearse": "wait"}
    document = consumers(bench, {"quick": reader('cat "$text" > out')})
    # The shorter of two jobs would be rehearsed first, so the slow one begins after the proof of the quick one.
    late = tool(f"seq {LINES} > out.txt", {"done": "File"}, {"text": found("out.txt")})
    steps = {"late": {"run": late, "in": {"done": "wait/done"}}, "slow": {"run": SLOW, "in": {"text": "late/text"}}}
    more = workflow({}, steps, {"slow": "slow/out"})
    for part in ("steps", "outputs"):
        document[part] |= more[part]
    path = bench.write(document, {}, io=True, config=auto)
    # An interpreter of its own waits for its threads at its end, as for that of the store of proofs.
    process = bench.start(path, PYTHONUNBUFFERED="1")
    wait_for_rehearsal()
    log = path.with_name("stderr")
    wait_for(lambda: "The run waits for" in log.read_text(), "the end of its steps", 60)
    assert "/quick/text may be read" in log.read_text()
    os.killpg(process.pid, signal.SIGINT)
    process.wait(30)
    wait_for(lambda: bench.leftovers() == [], "the end of everything", 30)


def test_a_run_that_has_ended_waits_for_a_rehearsal_only_for_a_moment(bench: Bench) -> None:
    until = f'until {GOES_ON}; do sleep 0.1; done; until [ -e "$TRACE.seen" ]; do sleep 0.1; done; touch late'
    waiting = {"run": tool(until, {}, {"late": found("late")}, requirements=NO_CORE), "in": {}}
    process, path = start(bench, consumers(bench, {"slow": SLOW}, count=0, late=waiting))
    directories = wait_for_rehearsal()
    path.with_name("trace.seen").touch()
    ended = bench.finish(process, path)
    assert ended.ok, ended.errors
    assert bench.leftovers() == []
    assert not any(each.exists() for each in directories)
    assert rehearsed(bench) == {"slow": (None, "the run ended first, which `rehearse: wait` prevents")}


def test_the_next_run_goes_on_where_a_rehearsal_had_to_end(bench: Bench) -> None:
    """The second run tries short files only: with a stream of the whole file the tool would fail there."""
    tools = {
        "slow": python(
            'import os, stat, sys; f = open(sys.argv[1], "rb"); n = len(f.read()); print(n, flush=True)\n'
            'is_second = os.path.exists(os.environ["TRACE"] + ".second")\n'
            "is_stream = stat.S_ISFIFO(os.fstat(f.fileno()).st_mode)\n"
            "if n > 9999: sys.exit(7 * (is_second and is_stream))\n"
            f'if not is_second: os.execlp("sleep", "sleep", "{_SLOW}")'
        )
    }
    until = f'until {GOES_ON} || [ -e "$TRACE.second" ]; do sleep 0.1; done; touch late'
    waiting = {"run": tool(until, {}, {"late": found("late")}, requirements=NO_CORE), "in": {}}
    document = consumers(bench, tools, count=0, late=waiting)
    process, path = start(bench, document, rehearse="idle")
    first = bench.finish(process, path)
    assert first.ok, first.errors
    assert rehearsed(bench) == {"slow": (None, "the run ended first, which `rehearse: wait` prevents")}
    [unfinished] = known_entries(default_path(), InconclusiveRehearsal)
    assert unfinished.shown is not None
    assert (unfinished.shown.way, unfinished.shown.is_short_tried) == ("net", False)
    path.write_text(path.read_text().replace('"idle"', '"wait"'))
    path.with_name("trace.second").touch()
    second = bench.finish(bench.start(path), path)
    assert second.ok, second.errors
    assert rehearsed(bench) == {"slow": ("net", None)}
    assert known_entries(default_path(), InconclusiveRehearsal) == ()
    assert bench.leftovers() == []


def test_a_job_that_wants_the_core_gets_it(bench: Bench) -> None:
    gone = f"while {GOES_ON}; do sleep 0.05; done; touch out"
    until = f"until {GOES_ON}; do sleep 0.1; done; touch go"
    cores = [{"class": "ResourceRequirement", "coresMin": len(os.sched_getaffinity(0))}]
    steps = {
        "early": {"run": tool(until, {}, {"go": found("go")}, requirements=NO_CORE), "in": {}},
        "late": {
            "run": tool(gone, {"go": "File"}, {"out": found("out")}, requirements=cores),
            "in": {"go": "early/go"},
        },
    }
    ended = bench.finish(*start(bench, consumers(bench, {"slow": SLOW}, count=0, **steps)), 60)
    assert ended.ok, ended.errors
    assert bench.leftovers() == []
