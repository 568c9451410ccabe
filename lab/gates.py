"""Workflows whose consumer starts with its producer: parts for tests of the gate."""

from __future__ import annotations

from typing import Any

from lab.cwl import Document, found, streaming, tool, workflow
from lab.runs import Run

# The number of this attempt, counted by what earlier ones noted.
ATTEMPT = 'note try; attempt=$(grep -c " try$" "$TRACE"); '
# Waits until another job has noted something. Without the plugin no job waits: steps run one after the other. Nothing
# in it fails, for what is closed while a process fails is not committed at once: the file is there before it is looked
# into. The shell itself reads the file: a program would take more time than all else here.
MEET = """meet() {
  i=0; : >> "$TRACE"
  while [ -n "$SFIO_JOB" ] && [ $i -lt 300 ]; do
    while read -r noted; do case $noted in *" $*"*) return ;; esac; done < "$TRACE"
    sleep 0.1
    i=$((i + 1))
  done
}
"""
# Waits until a number of jobs with the plugin have begun, in all runs of a bench: then as many run at once as may.
TOGETHER = """together() {
  i=0; begun="${TRACE%/*}/../begun"
  [ -z "$SFIO_JOB" ] || echo >> "$begun"
  while [ -n "$SFIO_JOB" ] && [ $i -lt 300 ] && [ "$(wc -l < "$begun")" -lt "$1" ]; do
    sleep 0.1
    i=$((i + 1))
  done
}
"""
BY_NAME = "note read; for i in 1 2 3; do cat $dir/$i; note got $i; done"
BY_LIST = "note read; for i in $(ls $dir); do cat $dir/$i; done; note listed"
FILES = "mkdir out; for i in 1 2 3; do echo file $i > out/$i; sleep 0.1; done"


def producer(script: str, committed: str, kind: str = "File", glob: str | None = None, **fields: Any) -> Document:
    rule = streaming({"port": "out", "committed": committed, "start": "producer", **fields})
    glob = glob or ("out" if kind == "Directory" else "out.txt")
    return tool(f"{MEET}note start; {script}; note end", {}, {"out": found(glob, kind)}, [rule])


def reader(script: str = "note read; cat $file; note done", **fields: Any) -> Document:
    return tool(script, {"file": "File"}, {"out": "stdout"}, stdout="read.txt", **fields)


def lister(script: str, kind: Any = "Directory") -> Document:
    return tool(script, {"dir": kind}, {"out": "stdout"}, stdout="read.txt")


def pair(first: Document, second: Document, **fields: Any) -> Document:
    """b reads what a makes."""
    name = next(iter(second["inputs"]))
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {name: "a/out"}, **fields}}
    return workflow({}, steps, {"a": "a/out", "b": "b/out"})


def assert_early(run: Run, what: str = "read") -> None:
    noted = [noted for _, noted in run.trace]
    assert noted.index(what) < noted.index("end"), run.trace
