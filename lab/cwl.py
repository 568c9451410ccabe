"""CWL documents and StreamFlow files, as plain dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
NAMESPACES = {"sfio": "urn:streamflow-io:cwl#", "cwltool": "http://commonwl.org/cwltool#"}

#: Of the `config` of a workflow: no step has a container.
NO_CONTAINERS: Document = {"docker": [{"step": "/", "deployment": {"type": "none", "config": {}}}]}
#: Many jobs run at the same time.
NO_CORES: Document = {"class": "ResourceRequirement", "coresMin": 0, "ramMin": 1}
# What workflows of tests use of CWL.
REQUIREMENTS = [
    {"class": name}
    for name in (
        "ScatterFeatureRequirement",
        "SubworkflowFeatureRequirement",
        "MultipleInputFeatureRequirement",
        "StepInputExpressionRequirement",
        "InlineJavascriptRequirement",
    )
]

# Notes what happens when, for tests that ask what ran at the same time. Not part of any output.
PRELUDE = 'note() { echo "$(date +%s.%N) $*" >> "$TRACE"; }\n'


def tool(
    script: str,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    hints: list[Document] | None = None,
    **fields: Any,
) -> Document:
    """A CommandLineTool that runs a shell script; `$name` is the path of a File, or the value, of the input `name`."""
    environment = [
        {"envName": name, "envValue": f"$(inputs['{name}'].path)" if _is_file(kind) else f"$(inputs['{name}'])"}
        for name, kind in (inputs or {}).items()
        if not _is_list(kind)
    ]
    requirements: list[Document] = [
        {"class": "EnvVarRequirement", "envDef": [*environment, {"envName": "TRACE", "envValue": "$(inputs.trace)"}]},
        *fields.pop("requirements", []),
    ]
    return {
        "class": "CommandLineTool",
        "baseCommand": ["sh", "-c", PRELUDE + script],
        "requirements": requirements,
        "hints": hints or [],
        "inputs": {**(inputs or {}), "trace": "string"},
        "outputs": outputs or {},
        **fields,
    }


def workflow(inputs: Mapping[str, Any], steps: Mapping[str, Document], outputs: Mapping[str, str]) -> Document:
    """A Workflow. Every step gets the input `trace`.

    :param steps: by name: `run`, and `in` as in CWL; `out` is taken from `run`
    :param outputs: by name: `step/output`; the type is that of the output, or an array of it for a scattered step
    """

    def step(body: Document) -> Document:
        return {"out": list(body["run"]["outputs"]), **body, "in": {**body["in"], "trace": "trace"}}

    def output(source: str) -> Document:
        name, _, port = source.partition("/")
        declared = steps[name]["run"]["outputs"][port]
        kind = declared["type"] if isinstance(declared, dict) else declared
        kind = "File" if kind == "stdout" else kind
        if "scatter" in steps[name]:
            kind = {"type": "array", "items": kind}
        if "when" in steps[name]:
            kind = ["null", kind]
        return {"type": kind, "outputSource": source}

    return {
        "class": "Workflow",
        "requirements": [*REQUIREMENTS],
        "inputs": {**inputs, "trace": "string"},
        "steps": {name: step(body) for name, body in steps.items()},
        "outputs": {name: output(source) for name, source in outputs.items()},
    }


def side_by_side(**parts: Document) -> Document:
    """One workflow of several, which need no cores: :meth:`lab.runs.Run.part` has what the tools of each note.

    A step takes as long to plan as in a workflow of its own, and a run takes far less.

    :param parts: workflows of one level, with standard outputs of their own names; other outputs are left out
    """
    steps: dict[str, Document] = {}
    outputs: dict[str, str] = {}
    for name, part in parts.items():
        printing = set()
        for step, body in part["steps"].items():
            run = body["run"]
            run["requirements"] = [*run["requirements"], NO_CORES]
            if isinstance(printed := run.get("stdout"), str):
                run["stdout"] = f"{name}-{printed}"
                printing |= {f"{step}/{port}" for port, kind in run["outputs"].items() if kind == "stdout"}
        kept = {port: output for port, output in part["outputs"].items() if output["outputSource"] in printing}
        steps[name] = {"run": {**part, "outputs": kept}, "in": {}}
        outputs |= {f"{name}-{port}": f"{name}/{port}" for port in kept}
    together = workflow({}, steps, outputs)
    for name, step in together["steps"].items():
        step["in"]["trace"] = {"source": "trace", "valueFrom": f"$(self)-of.{name}"}
    return together


def versioned(document: Mapping[str, Any]) -> Document:
    """The content of a CWL file."""
    return {"cwlVersion": "v1.2", "$namespaces": NAMESPACES, **document}


def streamflow_file(
    file: object,
    settings: object = None,
    *,
    name: str = "main",
    io: Mapping[str, Any] | None = None,
    connection: object = None,
    workflow: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Document:
    """The content of a StreamFlow file with one workflow.

    :param file: of the workflow
    :param settings: the job file; None leaves the entry out
    :param io: the `config` of the scheduler `sfio.io-aware`; None means StreamFlow's own scheduler
    :param connection: the path of the database; None means StreamFlow's own database
    :param workflow: more of the `config` of the workflow
    :param fields: more of the file
    """
    config = {"file": str(file), **({} if settings is None else {"settings": str(settings)}), **(workflow or {})}
    document: Document = {"version": "v1.0", "workflows": {name: {"type": "cwl", "config": config}}}
    if connection is not None:
        document["database"] = {"type": "default", "config": {"connection": str(connection)}}
    if io is not None:
        document["scheduling"] = {"scheduler": {"type": "sfio.io-aware", "config": dict(io)}}
    return {**document, **fields}


def streaming(*rules: Document) -> Document:
    return {"class": "sfio:Streaming", "rules": list(rules)}


def streamable(kind: Any = "File", **fields: Any) -> Document:
    """An input or output that is read or written front to back."""
    return {"type": kind, "streamable": True, **fields}


def found(glob: Any, kind: Any = "File", **fields: Any) -> Document:
    """An output that a glob finds."""
    return {"type": kind, "outputBinding": {"glob": glob}, **fields}


def bomb(levels: int = 8) -> str:
    """YAML of less than a kilobyte whose aliases stand for 9^levels values."""
    aliases = (f"x{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, levels + 1))
    return f"x0: &a0 [{', '.join('abcdefghi')}]\n{''.join(aliases)}"


def _is_file(kind: Any) -> bool:
    return (kind["type"] if isinstance(kind, dict) else kind) in ("File", "Directory", "stdin")


def _is_list(kind: Any) -> bool:
    return "[]" in str(kind) or "array" in str(kind)
