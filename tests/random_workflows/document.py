"""From a blueprint to CWL, and to the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.cwl import REQUIREMENTS, Document, streaming

from .blueprint import FIELDS, Blueprint, Step, Type, link_type
from .programs import ASKED, LARGE, WRITERS
from .tools import container, tool
from .versions import oldest_version


def document(blueprint: Blueprint) -> Document:
    """The workflow, with all its tools in one document."""
    described = _described(blueprint)
    return {"cwlVersion": oldest_version(described), **described} if blueprint.is_old else described


def _described(blueprint: Blueprint) -> Document:
    return {
        "class": "Workflow",
        "requirements": [*REQUIREMENTS, *container(blueprint.container, "requirements")],
        "hints": container(blueprint.container, "hints"),
        "inputs": {name: {"type": given.type.cwl} for name, given in blueprint.given.items()} | {"trace": "string"},
        "steps": {step.name: _step(step) for step in blueprint.steps},
        "outputs": {
            f"r{index}": {"type": link_type(blueprint, link).cwl, **link.cwl("outputSource")}
            for index, link in enumerate(blueprint.results)
        },
    }


def job(blueprint: Blueprint, directory: Path) -> dict[str, Any]:
    """The job object; its files are written into a directory."""
    return {name: _given(given.value, directory) for name, given in blueprint.given.items()}


def _given(value: Any, directory: Path) -> Any:
    if isinstance(value, list):
        return [_given(element, directory) for element in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {*FIELDS}:
        return {name: _given(file, directory) for name, file in value.items()}
    if value.get("class") == "Directory":
        return value
    path = directory / value["name"]
    if "files" in value:
        path.mkdir(exist_ok=True)
        for file in value["files"]:
            _given(file, path)
        return {"class": "Directory", "path": str(path)}
    lines = (f"line {line} of the input" * value.get("times", 1) for line in range(value["lines"]))
    path.write_text("".join(f"{line}\n" for line in lines))
    return {"class": "File", "path": str(path)}


def _step(step: Step) -> Document:
    if step.wrap == "expression":
        return _expression(step)
    ports = [output.port for output in step.outputs]
    rules = [{"port": output.port, **dict(output.hint)} for output in step.outputs if output.hint]
    sessions = [rule for rule in rules if "of" in rule]
    hints: list[Any] = [streaming(*streams)] if (streams := [rule for rule in rules if "of" not in rule]) else []
    if sessions:
        hints.append({"class": "sfio:ReadSession", "rules": sessions})
    if step.io_task:
        hints.append({"class": "sfio:IOTask"})
    if step.bandwidth:
        hints.append({"class": "sfio:StorageBandwidth", **dict(step.bandwidth)})
    run = tool(step, hints)
    body: Document = {"run": run, "in": {name: link.cwl() for name, link in step.links}, "out": ports}
    scattering: Document = {}
    if step.scatter:
        scattering["scatter"] = list(step.scatter)
        if len(step.scatter) > 1 or "k" in step.extras:
            scattering["scatterMethod"] = step.method or "dotproduct"
        if "k" in step.extras:
            scattering["scatter"].append("k")
    match step.wrap:
        case "workflow":
            return {**body, **scattering, "run": _workflow(step, run, {})}
        case "inside":
            return {**body, "run": _workflow(step, run, scattering)}
        case "loop":
            return {**body, **_loop(step)}
    if step.when is not None:
        least = 0 if ASKED in step.extras else 300 if LARGE in step.extras else None
        body["when"] = "$(inputs.sure)" if least is None else f"$(inputs.sure && inputs.i.size >= {least})"
        body["in"]["sure"] = {"default": step.when}
    return {**body, **scattering}


def _expression(step: Step) -> Document:
    """An ExpressionTool that hands its input on."""
    port = step.outputs[0].port
    run: Document = {
        "class": "ExpressionTool",
        "requirements": [{"class": "InlineJavascriptRequirement"}],
        "inputs": {"i": {"type": step.type.cwl}},
        "outputs": {port: {"type": step.type.cwl}},
        "expression": f"${{return {{'{port}': inputs.i}};}}",
    }
    return {"run": run, "in": {name: link.cwl() for name, link in step.links}, "out": [port]}


def _workflow(step: Step, run: Document, scattering: Document) -> Document:
    """A workflow around a tool, which it perhaps scatters."""
    lists = scattering.get("scatter", [])
    levels = len(lists) if step.method == "nested_crossproduct" else min(1, len(lists))
    names = [name for name, _ in step.links]
    types = {name: _type(run["inputs"][name]) for name in names}
    if step.type == Type("pair"):
        types["i"] = step.type.cwl
    return {
        "class": "Workflow",
        "requirements": [*REQUIREMENTS],
        "inputs": {
            name: {"type": {"type": "array", "items": kind} if name in lists else kind} for name, kind in types.items()
        },
        "steps": {
            "inner": {"run": run, "in": {name: name for name in names}, "out": list(run["outputs"]), **scattering}
        },
        "outputs": {
            output.port: {
                "type": WRITERS[output.writer].type.deeper(levels).cwl,
                "outputSource": f"inner/{output.port}",
            }
            for output in step.outputs
        },
    }


def _type(declared: Any) -> Any:
    return declared["type"] if isinstance(declared, dict) else declared


def _loop(step: Step) -> Document:
    """The step twice, the second time with its own output."""
    return {
        "requirements": [
            {
                "class": "cwltool:Loop",
                "loopWhen": "$(inputs.round < 2)",
                "loop": {"round": {"valueFrom": "$(inputs.round + 1)"}, "i": step.outputs[0].port},
                "outputMethod": "last",
            }
        ],
        "in": {**{name: link.cwl() for name, link in step.links}, "round": {"default": 0}},
    }
