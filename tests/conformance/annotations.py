"""An annotations file that gives every tool of a workflow, and each of its ports, a hint; or what needs none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

from lab.cwl import Document, streaming
from streamflow_io.hints.inheritance import HintedStep, Parameter, can_stream, port_path

Kind = Literal["stream", "gate", "close", "closegate", "io-task", "storage", "required", "unhinted"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_RULES: Final[Mapping[str, Document]] = {
    "gate": {"committed": "on_termination", "start": "producer"},
    "close": {"committed": "on_close"},
    "closegate": {"committed": "on_close", "start": "producer"},
}
_IO_TASK: Final[Document] = {"class": "sfio:IOTask"}
_HINTS: Final[Mapping[str, list[Document]]] = {
    "io-task": [_IO_TASK],
    "storage": [{"class": "sfio:StorageBandwidth", "storageBW": 60, "storage": "disk"}],
    "required": [
        _IO_TASK,
        {"class": "sfio:StorageBandwidth", "storageBW": "required", "within": 2, "storage": "disk"},
    ],
}
#: Runs without hints: what they stream was proven in the run before.
LEARNING: Final = frozenset[Kind]({"unhinted"})
#: The storage that the hints of `storage` and `required` name: of the former two jobs do not fit at once.
STORAGES: Final[list[Document]] = [{"name": "disk", "path": "/", "scope": "shared", "write": 100, "read": 100}]


def annotations_file(steps: Iterable[HintedStep], kind: Kind) -> Document:
    """The annotations file of a kind.

    :param steps: the tools, as `streamflow_io.hints.cwl.read_steps` finds them
    :return: empty if there is nothing that a hint of this kind could be about: a tool alone has no edges
    """
    steps = [step for step in steps if (step.path != "/" or kind in _HINTS) and kind not in LEARNING]
    if kind == "stream":
        streamable = [path for step in steps for path in (*_ports(step, step.inputs), *_ports(step, step.outputs))]
        return {"streamable": streamable} if streamable else {}
    hints = {step.path: _hints(step, kind) for step in steps}
    hinted = {path: of_step for path, of_step in hints.items() if of_step}
    return {"steps": hinted} if hinted else {}


def config(kind: Kind) -> Document:
    """The entries of the scheduler's `config` that the kind needs besides."""
    if kind in LEARNING:
        return {"streaming": "auto", "rehearse": "wait"}
    return {"storages": STORAGES} if kind in ("storage", "required") else {}


def _hints(step: HintedStep, kind: Kind) -> list[Document]:
    if kind in _HINTS:
        return _HINTS[kind]
    rules = [{"port": name, **_RULES[kind]} for name, output in step.outputs.items() if can_stream(output)]
    return [streaming(*rules)] if rules else []


def _ports(step: HintedStep, parameters: Mapping[str, Parameter]) -> list[str]:
    return [port_path(step.path, name) for name, parameter in parameters.items() if can_stream(parameter)]
