"""The readers of the ports of a translated workflow."""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

from streamflow.core.workflow import Step, Workflow

# By the name of a port: the steps that read it, each with the name of its input port. A missing port has no readers.
Readers = dict[str, list[tuple[Step, str]]]
S = TypeVar("S", bound=Step)


def readers_of(workflow: Workflow) -> Readers:
    """The readers of all ports, in the order of the steps."""
    readers: Readers = defaultdict(list)
    for step in workflow.steps.values():
        for name, port in step.input_ports.items():
            readers[port].append((step, name))
    return readers


def replace_step(readers: Readers, old: S, new: S) -> None:
    """Put a step in the place of another, with the name and the ports of that one."""
    new.input_ports = dict(old.input_ports)
    new.output_ports = dict(old.output_ports)
    new.workflow.steps[old.name] = new
    for port in new.input_ports.values():
        readers[port] = [(new if s is old else s, name) for s, name in readers[port]]
