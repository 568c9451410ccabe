"""Who reads the ports of a translated workflow."""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

from streamflow.core.workflow import Step, Workflow

# By the name of a port, the steps that read it and under which name; what is not in it is read by none.
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
    """Put a step where another was: with its name, and with its ports."""
    new.input_ports = dict(old.input_ports)
    new.output_ports = dict(old.output_ports)
    new.workflow.steps[old.name] = new
    for port in new.input_ports.values():
        readers[port] = [(new if s is old else s, name) for s, name in readers[port]]
