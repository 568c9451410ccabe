"""The tools of random workflows, as CWL.

A tool is a shell script, which fails where anything in it fails. `take` writes to its standard output what the tool
reads; the writer of the first output reads this as it comes; the writers of the others read what was kept of it.
"""

from __future__ import annotations

from typing import Any, Final

from lab.container_sites import BUSYBOX

from .blueprint import FIELDS, Container, Output, Step, record
from .programs import EXTRAS, JSON, LINES, PAIR, READERS, WRITERS

_STDIN_OR_NONE: Final = "$(inputs.i ? inputs.i.path : '/dev/null')"


def tool(step: Step, hints: list[Any]) -> dict[str, Any]:
    """The CommandLineTool of a step."""
    reader = READERS[step.reader]
    extras = {name: EXTRAS[name] for name in step.extras}
    environment = {"NEEDED": reader.needs or "none"}
    environment |= {f"EXTRA_{name}": extra.value for name, extra in extras.items() if extra.value}
    environment |= {name: value for extra in extras.values() for name, value in extra.variables.items()}
    environment |= {f"NAME_{output.port}": _name(step, output) for output in step.outputs}
    staged = [extra.staged for extra in extras.values() if extra.staged]
    standard_output = [_glob(step, output) for output in step.outputs if output.writer == "stdout"]
    declared = step.type.cwl
    if reader.optional and not step.type.optional:
        declared = ["null", declared]
    requirements, more_hints = (container(step.container, listed) for listed in ("requirements", "hints"))
    shell = "sh" if step.container is not None and step.container.image == BUSYBOX else "bash"
    return {
        "class": "CommandLineTool",
        "baseCommand": [shell, "-o", "pipefail", "-ec", script(step), shell],
        "requirements": [
            {"class": "InlineJavascriptRequirement"},
            {"class": "EnvVarRequirement", "envDef": environment},
            *([{"class": "InitialWorkDirRequirement", "listing": staged}] if staged else []),
            *(extra.requirement for extra in extras.values() if extra.requirement),
            *requirements,
        ],
        "hints": [*hints, *more_hints],
        "inputs": {
            "i": _pair(step)
            if step.reader == PAIR
            else {"type": declared, "streamable": step.streamable}
            | ({} if reader.stdin else {"inputBinding": dict(reader.binding)})
            | reader.fields,
            **{name: kind for extra in extras.values() for name, kind in extra.inputs.items()},
        },
        "outputs": {output.port: _output(step, output) for output in step.outputs},
        **({"stdin": _STDIN_OR_NONE if reader.optional else "$(inputs.i.path)"} if reader.stdin else {}),
        **({"stdout": standard_output[0]} if standard_output else {}),
        **{name: value for extra in extras.values() for name, value in extra.fields.items()},
    }


def _pair(step: Step) -> dict[str, Any]:
    """The input of a tool that reads both files of a record; each is an argument."""
    file = _file(step.streamable)
    return {"type": record({name: {**file, "inputBinding": {"position": n}} for n, name in enumerate(FIELDS, 1)})}


def _file(streamable: bool) -> dict[str, Any]:
    """A field of a record. In CWL v1.0 a field cannot be `streamable`."""
    return {"type": "File", "streamable": True} if streamable else {"type": "File"}


def container(declared: Container | None, listed: str) -> list[Any]:
    """The entries that a DockerRequirement adds to `requirements` or `hints`."""
    if declared is None or declared.listed != listed:
        return []
    output = {"dockerOutputDirectory": declared.output} if declared.output else {}
    network = [{"class": "NetworkAccess", "networkAccess": True}] if declared.network else []
    return [{"class": "DockerRequirement", "dockerPull": declared.image, **output}, *network]


def script(step: Step) -> str:
    """The shell script of a tool."""
    first, *others = step.outputs
    also = "; ".join(EXTRAS[extra].script for extra in step.extras) or ":"
    # What is said of a broken pipe would be in a standard output, with StreamFlow, now and then.
    by = ":" if first.writer == LINES else f"echo 'by {step.name}'"
    take = f"{{ {also}; {READERS[step.reader].script}; {by}; }} 2> /dev/null"
    keep = "tee .kept | " if others else ""
    lines = [f"{take} | {keep}{{ {_write(first)}\n}}"]
    lines += [f"{{ {_write(output)}\n}} < .kept" for output in others]
    if first.writer == JSON:
        port = first.port
        lines.append(
            f"""printf '{{"{port}": {{"class": "File", "path": "%s"}}}}' "$NAME_{port}.out" > cwl.output.json"""
        )
    return "\n".join(lines)


def _write(output: Output) -> str:
    return f'N="./$NAME_{output.port}"; {WRITERS[output.writer].script}'


def _output(step: Step, output: Output) -> dict[str, Any]:
    writer = WRITERS[output.writer]
    found: dict[str, Any] = {"type": "stdout"}
    if output.writer == PAIR:
        file = _file(output.streamable)
        globs = {name: {"glob": f"{_glob(step, output)}.{name}"} for name in FIELDS}
        return {"type": record({name: {**file, "outputBinding": glob} for name, glob in globs.items()})}
    if output.writer != "stdout":
        binding = {"glob": _glob(step, output), **writer.binding}
        found = {"type": writer.type.cwl, "outputBinding": binding, **writer.fields}
    return {**found, "streamable": True} if output.streamable else found


def _glob(step: Step, output: Output) -> str:
    glob, name = WRITERS[output.writer].glob, _name(step, output)
    if "function" in glob:
        # Within a string of JavaScript.
        name = name.replace("$(", "' + ").replace(")", " + '")
    return glob.replace("{n}", name)


def _name(step: Step, output: Output) -> str:
    """The beginning of the names of the files of an output: another one in each job, also in each job of a scatter."""
    parts = []
    if "name" in step.extras:
        parts.append("$(inputs.name)")
    elif step.named:
        parts.append("$(inputs.i.nameroot)" if step.type.kind == "File" else "$(inputs.i)")
    if "j" in step.extras:
        parts.append("$(inputs.j)")
    return "-".join([*parts, step.name, output.port])
