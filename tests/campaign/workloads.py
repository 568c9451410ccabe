"""The workflows of the campaign. Each takes a few seconds, and every step that reads notes what it has read.

A note is `read NAME LENGTH DIGEST`, written after the last byte was read and hashed, outside of the job directories.
What plain StreamFlow notes is the truth: a note of ours that it does not have is of partial or wrong data.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from tests.random_workflows.document import document, job
from tests.random_workflows.generate import generate
from tests.random_workflows.programs import READERS

from .cases import RANDOM

# By these, processes of a tool are told from others, also where StreamFlow runs it by itself.
_PRODUCER = "export CAMPAIGN_PRODUCER=1\n"
_CONSUMER = "export CAMPAIGN_CONSUMER=1\n"
# `part NUMBER` writes 1,000 lines that only depend on the number. A tool stops at the first command that fails.
# `held` waits for the fault of a trial whose producers are held.
_SHELL = """set -e
held() { while [ -n "$CAMPAIGN_HOLD" ] && [ ! -e "$CAMPAIGN_HOLD" ]; do sleep 0.05; done; }
part() { seq -f "line %.0f of the part" $(($1 * 1000)) $(($1 * 1000 + 999)); }
taken() { size=$(wc -c < "$2"); digest=$(sha1sum < "$2"); note "read $1 $size $digest"; }
"""


def _make(script: str, outputs: Document, *rules: Document, **fields: Any) -> Document:
    return tool(_PRODUCER + _SHELL + script, {}, outputs, [streaming(*rules)] if rules else [], **fields)


def _read(name: str, script: str, file: Document | str = "File") -> Document:
    # Outputs of one name would be told apart by the order in which StreamFlow gets them.
    return tool(_CONSUMER + _SHELL + script, {"file": file}, {"out": "stdout"}, stdout=f"{name}.txt")


# A reader takes a while, so that there is something to kill.
def _read_file(name: str) -> str:
    return f'(head -c 9999; sleep 0.3; cat) < "$file" > copy; taken {name} copy; tr a-z A-Z < copy'


_READ_PART = _read_file('"$(basename "$file")"')
_READ_TREE = (
    'names=$(ls "$file"); for name in $names; do cat "$file/$name" > copy; sleep 0.05; taken "$name" copy; done; '
    'ls "$file" > names; taken tree names; cat names'
)


def byte_streams() -> Document:
    """Two streams one after the other, the first into a standard input; then a step that reads the file."""
    lines = "for i in $(seq 1 40); do part $i; [ $i != 20 ] || held; sleep 0.04; done"
    middle = tool(
        _PRODUCER + _CONSUMER + _SHELL + "tr a-y b-z", {"file": streamable()}, {"out": streamable("stdout")},
        stdout="shifted.txt", stdin="$(inputs.file.path)",
    )  # fmt: skip
    steps: dict[str, Document] = {
        "make": {"run": _make(lines, {"out": streamable("stdout")}, stdout="made.txt"), "in": {}},
        "readmake": {"run": middle, "in": {"file": "make/out"}},
        "read": {"run": _read("read", _read_file("stream"), streamable()), "in": {"file": "readmake/out"}},
        "readlast": {"run": _read("readlast", _read_file("last")), "in": {"file": "read/out"}},
    }
    return workflow({}, steps, {"made": "make/out", "read": "read/out", "last": "readlast/out"})


def windows() -> Document:
    """Streams whose bytes are discarded when their readers have them, and whose jobs are paused meanwhile."""
    lines = "for i in $(seq 1 40); do part $i; sleep 0.04; done"
    rule = {"port": "out", "mode": "no_update", "window": "16MB"}
    middle = tool(
        _PRODUCER + _CONSUMER + _SHELL + "tr a-y b-z", {"file": streamable()}, {"out": "stdout"}, [streaming(rule)],
        stdout="shifted.txt", stdin="$(inputs.file.path)",
    )  # fmt: skip
    steps: dict[str, Document] = {
        "make": {"run": _make(lines, {"out": "stdout"}, rule, stdout="made.txt"), "in": {}},
        "readmake": {"run": middle, "in": {"file": "make/out"}},
        "read": {"run": _read("read", _read_file("stream"), streamable()), "in": {"file": "readmake/out"}},
    }
    return workflow({}, steps, {"read": "read/out"})


def commits() -> Document:
    """Three producers that commit a file and go on, each with a consumer of its own."""
    made = tool(
        _PRODUCER + _SHELL + "for i in 1 2 3; do part $number$i; sleep 0.15; done > made.txt; held; sleep 0.8",
        {"number": "int"}, {"out": found("made.txt")}, [streaming({"port": "out", "committed": "on_close"})],
    )  # fmt: skip
    numbers = {"type": "int[]", "default": [1, 2, 3]}
    steps: dict[str, Document] = {
        "make": {"run": made, "scatter": "number", "in": {"number": "numbers"}},
        "read": {"run": _read("read", _read_file("commit")), "scatter": "file", "in": {"file": "make/out"}},
    }
    return workflow({"numbers": numbers}, steps, {"made": "make/out", "read": "read/out"})


def elements() -> Document:
    """The files of a list, each read by a job of a scatter as soon as it is closed."""
    script = "for i in 3 1 6 2 5 4; do [ $i != 2 ] || held; part $i > part$i; sleep 0.25; done"
    made = _make(script, {"out": found("part*", "File[]")}, {"port": "out", "committed": "on_close"})
    steps: dict[str, Document] = {
        "make": {"run": made, "in": {}},
        "read": {"run": _read("readpart", _READ_PART), "scatter": "file", "in": {"file": "make/out"}},
    }
    return workflow({}, steps, {"made": "make/out", "read": "read/out"})


def directory() -> Document:
    """A directory that is complete with its sixth file, long before its producer ends."""
    script = "mkdir tree; for i in 1 2 3 4 5 6; do part $i > tree/part$i; sleep 0.15; done; sleep 0.8"
    rule = {"port": "out", "committed": "on_n_files", "nFiles": 6}
    made = _make(script, {"out": found("tree", "Directory")}, rule)
    steps: dict[str, Document] = {
        "make": {"run": made, "in": {}},
        "read": {"run": _read("readtree", _READ_TREE, "Directory"), "in": {"file": "make/out"}},
    }
    return workflow({}, steps, {"made": "make/out", "read": "read/out"})


def mixture() -> Document:
    """One producer of a stream, a list and a directory; a consumer of each."""
    script = (
        "mkdir tree; for i in 1 2 3 4 5; do "
        "part $i > part$i; part 1$i > tree/leaf$i; part 2$i; sleep 0.25; part 3$i; done; sleep 0.3"
    )
    outputs = {"log": streamable("stdout"), "parts": found("part*", "File[]"), "tree": found("tree", "Directory")}
    made = _make(
        script, outputs, {"port": "parts", "committed": "on_close"},
        {"port": "tree", "committed": "on_n_files", "nFiles": 5}, stdout="log.txt",
    )  # fmt: skip
    steps: dict[str, Document] = {
        "make": {"run": made, "in": {}},
        "readlog": {"run": _read("readlog", _read_file("log"), streamable()), "in": {"file": "make/log"}},
        "readpart": {"run": _read("readpart", _READ_PART), "scatter": "file", "in": {"file": "make/parts"}},
        "readtree": {"run": _read("readtree", _READ_TREE, "Directory"), "in": {"file": "make/tree"}},
    }
    results = {"log": "readlog/out", "parts": "readpart/out", "tree": "readtree/out", "made": "make/parts"}
    return workflow({}, steps, results)


def gate() -> Document:
    """A file and a directory whose consumers start with the producer, and are held where they touch them."""
    script = (
        "part 0 > made.txt; mkdir tree; sleep 0.5; part 9 >> made.txt; "
        "for i in 1 2 3 4 5 6; do part $i > tree/part$i; sleep 0.15; done; sleep 0.3"
    )
    outputs = {"file": found("made.txt"), "tree": found("tree", "Directory")}
    held = {"mode": "update", "start": "producer"}
    made = _make(
        script, outputs, {"port": "file", "committed": "on_close:2", **held},
        {"port": "tree", "committed": "on_termination", **held},
    )  # fmt: skip
    steps: dict[str, Document] = {
        "make": {"run": made, "in": {}},
        "readfile": {"run": _read("readfile", _read_file("file")), "in": {"file": "make/file"}},
        "readtree": {"run": _read("readtree", _READ_TREE, "Directory"), "in": {"file": "make/tree"}},
    }
    return workflow({}, steps, {"file": "readfile/out", "tree": "readtree/out", "made": "make/tree"})


def parts() -> Document:
    """A split that writes nothing, and readers of its parts, as streams and as files, which are read ahead."""
    # The file is taken out of the page cache, or there is nothing to read ahead.
    cold = """import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)"""
    forget = f"python3 -S -E -c '{cold}' \"$file\"; echo cold"
    say = """for i in 0 1 2 3 4 5 6 7; do
  start=$((i * 2000000))
  if [ -n "$SFIO_PARTS" ]; then echo "{\\"path\\": \\"part$i\\", \\"extents\\": [[$start, 2000000]]}" >> "$SFIO_PARTS"
  else tail -c +$((start + 1)) "$file" | head -c 2000000 > part$i; fi
  sleep 0.1
done"""
    split = tool(
        _PRODUCER + _SHELL + say,
        {"file": "File", "done": "File"},
        {"out": found("part*", "File[]")},
        [{"class": "sfio:ReadSession", "rules": [{"port": "out", "of": "file"}]}],
    )
    stream = _read("stream", _READ_PART, streamable())
    steps: dict[str, Document] = {
        "make": {"run": _make("seq -w 1 2000000 > made.txt", {"out": found("made.txt")}), "in": {}},
        "forget": {"run": _read("forget", forget), "in": {"file": "make/out"}},
        "split": {"run": split, "in": {"file": "make/out", "done": "forget/out"}},
        "readstream": {"run": stream, "scatter": "file", "in": {"file": "split/out"}},
        "readfile": {"run": _read("file", _READ_PART), "scatter": "file", "in": {"file": "split/out"}},
    }
    return workflow({}, steps, {"streams": "readstream/out", "files": "readfile/out"})


def growing() -> Document:
    """A split with declared cuts, and readers of its parts, while the file is still written."""
    split: Document = {
        "class": "CommandLineTool",
        # What it is given is the same in each run, or it would have to be verified again.
        "baseCommand": ["sh", "-c", f'{_PRODUCER}{_CONSUMER}split -l 4000 -a 1 --numeric-suffixes=1 "$0" part'],
        "hints": [
            {
                "class": "sfio:ReadSession",
                "rules": [{"port": "out", "of": "file", "records": "lines", "every": 4000, "names": "part%d"}],
            }
        ],
        "inputs": {"file": streamable(inputBinding={"position": 1})},
        "outputs": {"out": found("part*", "File[]")},
    }
    lines = "for i in $(seq 1 26); do part $i; sleep 0.05; done > made.txt"
    stream = _read("stream", _READ_PART, streamable())
    steps: dict[str, Document] = {
        "make": {"run": _make(lines, {"out": streamable(**found("made.txt"))}), "in": {}},
        "split": {"run": split, "in": {"file": "make/out"}},
        "readstream": {"run": stream, "scatter": "file", "in": {"file": "split/out"}},
        "readfile": {"run": _read("file", _READ_PART), "scatter": "file", "in": {"file": "split/out"}},
    }
    made = workflow({}, steps, {"streams": "readstream/out", "files": "readfile/out"})
    del made["steps"]["split"]["in"]["trace"]
    return made


def pauses() -> Document:
    """I/O tasks that are paused, by limits that change: one reads a stream, one commits files one by one."""
    limit = {"class": "sfio:StorageBandwidth", "storageBW": 2, "limited": True}
    hints = [{"class": "sfio:IOTask"}, limit]
    lines = "for i in 1 2 3; do part $i; sleep 0.2; done"
    save = 'for i in 1 2 3 4 5 6; do (part $i; cat "$file" "$file" "$file" "$file" "$file") > saved$i; done'
    steps: dict[str, Document] = {
        "make": {
            "run": _make(lines, {"out": streamable("stdout")}, stdout="made.txt"),
            "in": {},
        },
        "copy": {
            "run": tool(
                _PRODUCER + _CONSUMER + _SHELL + "cat \"$file\" > again; cat again again again",
                {"file": streamable()}, {"out": "stdout"}, hints, stdout="copied.txt",
            ),
            "in": {"file": "make/out"},
        },
        "save": {
            "run": tool(
                _PRODUCER + _CONSUMER + _SHELL + save, {"file": "File"}, {"out": found("saved*", "File[]")},
                [*hints, streaming({"port": "out", "committed": "on_close"})],
            ),
            "in": {"file": "copy/out"},
        },
        "read": {"run": _read("readsaved", _READ_PART), "scatter": "file", "in": {"file": "save/out"}},
    }  # fmt: skip
    return workflow({}, steps, {"copied": "copy/out", "saved": "save/out", "read": "read/out"})


def required() -> Document:
    """I/O tasks that are paused to what is required of them, beside a job that computes; all is needed at its end."""
    # 22 MB: what is small is not limited.
    grown = "part $number > made.txt; for i in $(seq 10); do cat made.txt made.txt > more; mv more made.txt; done"
    made = tool(_PRODUCER + _SHELL + grown, {"number": "int"}, {"out": found("made.txt")})
    bandwidth = {"class": "sfio:StorageBandwidth", "storageBW": "required", "within": 2}
    save = tool(
        _PRODUCER + _CONSUMER + _SHELL + 'cat "$file" > saved.txt; taken saved saved.txt',
        {"file": "File"}, {"out": found("saved.txt")}, [{"class": "sfio:IOTask"}, bandwidth],
    )  # fmt: skip
    join = tool(
        _CONSUMER + _SHELL + 'taken joined "$file"; cat "$other"', {"file": "File", "other": "File"},
        {"out": "stdout"}, stdout="joined.txt",
    )  # fmt: skip
    numbers = {"type": "int[]", "default": [1, 2]}
    steps: dict[str, Document] = {
        "make": {"run": made, "scatter": "number", "in": {"number": "numbers"}},
        "save": {"run": save, "scatter": "file", "in": {"file": "make/out"}},
        "work": {"run": _read("work", 'sleep 1.5; head -n 3 "$file"'), "scatter": "file", "in": {"file": "make/out"}},
        "join": {
            "run": join, "scatter": ["file", "other"], "scatterMethod": "dotproduct",
            "in": {"file": "save/out", "other": "work/out"},
        },
    }  # fmt: skip
    return workflow({"numbers": numbers}, steps, {"saved": "save/out", "joined": "join/out"})


def shared() -> Document:
    """Jobs that hold half of a storage each, beside those of another run that does the same."""
    made = _make("part 1; sleep 0.3", {"out": "stdout"}, stdout="made-$(inputs.number).txt")
    made["inputs"]["number"] = "int"
    save = _read("save-$(inputs.file.nameroot)", _read_file("saved"))
    for step, hints in ((made, []), (save, [{"class": "sfio:IOTask"}])):
        bandwidth = {"class": "sfio:StorageBandwidth", "storageBW": 10, "direction": "write" if hints else "both"}
        step["hints"] = [*step.get("hints", []), *hints, bandwidth]
    numbers = {"type": "int[]", "default": [1, 2, 3, 4]}
    steps: dict[str, Document] = {
        "make": {"run": made, "scatter": "number", "in": {"number": "numbers"}},
        "save": {"run": save, "scatter": "file", "in": {"file": "make/out"}},
    }
    return workflow({"numbers": numbers}, steps, {"made": "make/out", "saved": "save/out"})


def unhinted() -> Document:
    """A chain without hints, whose tools were rehearsed in the run before."""
    lines = "for i in $(seq 1 40); do part $i; sleep 0.04; done"
    scripts = {"copy": 'cat "$1"', "shift": '(head -c 9999 && sleep 0.3 && tr a-y b-z) < "$1"', "sort": 'sort -r "$1"'}
    steps: dict[str, Document] = {"make": {"run": _make(lines, {"out": "stdout"}, stdout="made.txt"), "in": {}}}
    for (name, script), source in zip(scripts.items(), ("make", *scripts), strict=False):
        role = _CONSUMER if name == "sort" else _PRODUCER + _CONSUMER
        run: Document = {
            "class": "CommandLineTool",
            "baseCommand": ["sh", "-c", role + script, "sh"],
            # By this its processes are known; it is the same in each run, because proofs hold for that.
            "requirements": [{"class": "EnvVarRequirement", "envDef": {"TRACE": "none"}}],
            "inputs": {"file": {"type": "File", "inputBinding": {"position": 1}}},
            "outputs": {"out": "stdout"},
            "stdout": f"{name}.txt",
        }
        steps[name] = {"run": run, "in": {"file": f"{source}/out"}}
    made = workflow({}, steps, {name: f"{name}/out" for name in steps})
    for name in scripts:
        del made["steps"][name]["in"]["trace"]
    return made


#: Workloads that run once without a fault before: declared cuts are verified then, and tools rehearsed.
LEARNED = frozenset({"growing", "unhinted"})
#: What rehearsals find of those steps that read no streams.
REFUSED = {"/sort": "the tool asks for the size, or more, by the path"}
WORKLOADS = {
    "byte-streams": byte_streams,
    "windows": windows,
    "commits": commits,
    "elements": elements,
    "directory": directory,
    "mixture": mixture,
    "gate": gate,
    "parts": parts,
    "growing": growing,
    "pauses": pauses,
    "required": required,
    "shared": shared,
    "unhinted": unhinted,
    "rehearsed": unhinted,
}
#: What the scheduler is told.
_AUTO = {"streaming": "auto", "rehearse": "wait"}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "shared": {"storages": [{"name": "disk", "path": "/", "write": 20, "read": 20}], "ioExecutors": 8},
    "unhinted": _AUTO,
    "rehearsed": _AUTO,
}
#: The environment of their runs: the files of this one are small.
ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {"windows": {"SFIO_NODE_BLOCK": "4096"}}
#: Workloads beside which another run of the plugin goes on, whatever becomes of the first.
BESIDE = frozenset({"shared"})
_SPACE = 48 * 2**20
_MORE_SPACE = {"required": 192 * 2**20}
_RANDOM_STEPS = 6
#: This many outputs of a random workload are streamed, committed or at a gate.
_OURS = 3
#: Each job of a random workload takes so long at least, that faults find something.
_PAUSE = "sleep 0.25\n"


def random_name(seed: int, number: int) -> str:
    """The name of a random workflow."""
    return f"{RANDOM}{seed}-{number}"


def random_names(seed: int, count: int) -> list[str]:
    """Random workflows with something of ours, in which nothing fails without its job, as in the background.

    No tool of theirs is declared wrongly: what is learned of such a tool is true.
    """

    def is_fit(number: int) -> bool:
        steps = generate(seed, number, _RANDOM_STEPS).steps
        outputs = [output for step in steps for output in step.outputs]
        ours = sum(bool(output.hint) or output.streamable for output in outputs)
        is_wrong = any(step.streamable and READERS[step.reader].wrong for step in steps)
        return ours >= _OURS and not is_wrong and all(output.writer != "background" for output in outputs)

    return [random_name(seed, number) for number in itertools.islice(filter(is_fit, itertools.count()), count)]


def make(name: str, files: Path) -> tuple[Document, Mapping[str, Any]]:
    """A workload, and its job.

    :param files: a directory for what it is given
    """
    if not name.startswith(RANDOM):
        return WORKLOADS[name](), {}
    seed, number = map(int, name.removeprefix(RANDOM).split("-"))
    blueprint = generate(seed, number, _RANDOM_STEPS)
    files.mkdir()
    return _with_roles(document(blueprint)), job(blueprint, files)


def _with_roles(workflow: Document) -> Document:
    """Say in the environment of every tool what it is."""
    for step in workflow["steps"].values():
        tool = _tool(step)
        if tool["class"] == "ExpressionTool":
            continue
        # Whatever fails says why.
        tool["baseCommand"] = [
            _PAUSE + word.replace("2> /dev/null", "") if "\n" in word else word for word in tool["baseCommand"]
        ]
        environment = next(entry for entry in tool["requirements"] if entry["class"] == "EnvVarRequirement")["envDef"]
        environment |= {"TRACE": "none", "CAMPAIGN_PRODUCER": "1"}
        if any("/" in source for source in _sources(step)):
            environment["CAMPAIGN_CONSUMER"] = "1"
    return workflow


def _sources(step: Document) -> list[str]:
    """The sources of the inputs of a step."""
    connected = [entry.get("source", ()) if isinstance(entry, dict) else entry for entry in step["in"].values()]
    return [source for sources in connected for source in ([sources] if isinstance(sources, str) else sources)]


def space(name: str) -> int:
    """Bytes of a disk on which a workload has room enough, and that is full soon."""
    return _MORE_SPACE.get(name, _SPACE)


def plain_steps(workflow: Document, has_gates: bool = True) -> set[str]:
    """The steps that neither write early for another nor read a stream: StreamFlow runs them by itself.

    :param has_gates: whether consumers start with their producers where the steps run
    """
    tools = {name: _tool(step) for name, step in workflow["steps"].items()}
    sources = {name: {*_sources(step)} for name, step in workflow["steps"].items()}
    rules = [(f"{name}/{rule['port']}", rule) for name, tool in tools.items() for rule in _rules(tool)]
    early = {source for source, rule in rules if (has_gates and rule.get("start") == "producer") or "of" in rule}
    streams = {f"{name}/{port}" for name, tool in tools.items() for port in _streamable(tool["outputs"])}
    read = set().union(*sources.values())
    served = {source.partition("/")[0] for source in read & (streams | {source for source, _ in rules})}
    return {
        name
        for name, tool in tools.items()
        if name not in served and not _streamable(tool["inputs"]) and not early & sources[name]
    }


def _tool(step: Document) -> Document:
    """The tool of a step, perhaps within a workflow of its own."""
    run: Document = step["run"]
    return run["steps"]["inner"]["run"] if run["class"] == "Workflow" else run


def _rules(tool: Document) -> list[Document]:
    return [rule for hint in tool.get("hints", []) for rule in hint.get("rules", [])]


def _streamable(ports: Document) -> list[str]:
    return [name for name, port in ports.items() if isinstance(port, dict) and port.get("streamable")]
