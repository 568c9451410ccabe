"""A random workflow as plain data: small enough to be made smaller, and complete enough to become CWL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Kind = Literal["File", "Directory", "int", "string", "pair"]
Merge = Literal["", "merge_nested", "merge_flattened"]
Wrap = Literal["", "workflow", "inside", "loop", "expression"]
Method = Literal["", "dotproduct", "flat_crossproduct", "nested_crossproduct"]
SHARED: Final = "/shared"
#: The fields of a `pair`, which is a record of two files.
FIELDS: Final = ("a", "b")


@dataclass(frozen=True)
class Type:
    """A CWL type.

    :ivar depth: of lists in lists
    :ivar optional: whether null is possible; of a list, in its elements
    """

    kind: Kind
    depth: int = 0
    optional: bool = False

    @property
    def cwl(self) -> Any:
        kind: Any = record({name: {"type": "File"} for name in FIELDS}) if self.kind == "pair" else self.kind
        described: Any = ["null", kind] if self.optional else kind
        for _ in range(self.depth):
            described = {"type": "array", "items": described}
        return described

    def deeper(self, levels: int = 1) -> Type:
        return replace(self, depth=self.depth + levels)


def record(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The type of a record."""
    return {"type": "record", "name": "pair", "fields": [{"name": name, **field} for name, field in fields.items()]}


@dataclass(frozen=True)
class Link:
    """The source of an input of a step, or of an output of the workflow.

    :ivar sources: names of workflow inputs, or `STEP/OUTPUT`; none: nothing is connected
    :ivar default: None means that the link has no default
    """

    sources: tuple[str, ...] = ()
    merge: Merge = ""
    pick: Literal["", "first_non_null", "all_non_null"] = ""
    value_from: str = ""
    default: int | str | None = None

    def cwl(self, source: str = "source") -> dict[str, Any]:
        listed = len(self.sources) > 1 or self.merge or self.pick
        found = {
            source: list(self.sources) if listed else "".join(self.sources),
            "linkMerge": self.merge,
            "pickValue": self.pick,
            "valueFrom": self.value_from,
        }
        chosen = {key: value for key, value in found.items() if value}
        return chosen if self.default is None else {**chosen, "default": self.default}


@dataclass(frozen=True)
class Output:
    """An output of a tool.

    :ivar writer: how it is written, a key of `WRITERS`
    :ivar hint: a rule but for its port, of a read session if it has `of`, else of streaming; empty: none
    """

    port: str
    writer: str
    streamable: bool = False
    hint: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Container:
    """A DockerRequirement.

    :ivar listed: among what
    :ivar output: its dockerOutputDirectory
    :ivar network: whether the tool may use one
    """

    image: str
    listed: Literal["requirements", "hints"]
    output: str = ""
    network: bool = False


@dataclass(frozen=True)
class Step:
    """A step, and its tool.

    :ivar reader: how the tool reads its input `i`, a key of `READERS`
    :ivar type: of the tool's input `i`
    :ivar links: of `i`, and of others
    :ivar extras: what else the tool declares, keys of `EXTRAS`
    :ivar scatter: over these inputs
    :ivar when: a condition that is always so; None means that the step has none
    :ivar wrap: in a subworkflow of its own, which is scattered (`workflow`) or scatters (`inside`); in a `loop`; or no
        tool at all, but an `expression` that hands `i` on
    :ivar named: the names of its files begin with that of `i`
    :ivar bandwidth: the hint StorageBandwidth; empty: none
    :ivar container: of the tool itself
    :ivar boxed: whether it runs in the container that the StreamFlow file names
    """

    name: str
    reader: str
    type: Type
    links: tuple[tuple[str, Link], ...]
    outputs: tuple[Output, ...]
    extras: tuple[str, ...] = ()
    scatter: tuple[str, ...] = ()
    method: Method = ""
    when: bool | None = None
    wrap: Wrap = ""
    named: bool = False
    streamable: bool = False
    io_task: bool = False
    bandwidth: tuple[tuple[str, Any], ...] = ()
    container: Container | None = None
    boxed: bool = False

    def source_of(self, port: str) -> str:
        return f"{self.name}/{port}"


@dataclass(frozen=True)
class Given:
    """An input of the workflow, to be written where the job is.

    Files are `{"name": ..., "lines": ...}`, directories `{"name": ..., "files": [...]}`.
    """

    type: Type
    value: Any


@dataclass(frozen=True)
class Blueprint:
    """A workflow, and what it is given.

    :ivar results: the outputs of the workflow
    :ivar types: of every `STEP/OUTPUT`
    :ivar retries: whether the failure manager allows another attempt
    :ivar config: of the scheduler
    :ivar beside: whether ours runs twice at the same time, with one storage
    :ivar container: of all tools without one of their own
    :ivar box: the working directory of a container that the StreamFlow file names; it sees that of the driver's node at
        :data:`SHARED`
    :ivar engine: options of all other containers
    :ivar is_old: whether its version is the oldest that has all that it uses
    """

    given: Mapping[str, Given]
    steps: tuple[Step, ...]
    results: tuple[Link, ...]
    types: Mapping[str, Type]
    retries: bool = False
    config: tuple[tuple[str, Any], ...] = ()
    beside: bool = False
    container: Container | None = None
    box: str = ""
    engine: tuple[tuple[str, Any], ...] = ()
    is_old: bool = False

    @property
    def is_declared(self) -> bool:
        """Whether cuts of a split are declared, which are served from the second run on."""
        return any("records" in dict(output.hint) for step in self.steps for output in step.outputs)

    @property
    def is_unhinted(self) -> bool:
        """Whether it streams what is proven."""
        return dict(self.config).get("streaming") == "auto"

    @property
    def runs(self) -> int:
        """How often it is run, with what was learned before: what the second run proves streams in the third."""
        return 3 if self.is_unhinted else 2 if self.is_declared or "memory" in dict(self.config) else 1

    def type_of(self, source: str) -> Type:
        return self.given[source].type if source in self.given else self.types[source]

    def used(self) -> Iterator[str]:
        """The outputs that are connected to anything."""
        for step in self.steps:
            for _, link in step.links:
                yield from link.sources
        for link in self.results:
            yield from link.sources


def link_type(blueprint: Blueprint, link: Link) -> Type:
    """The type of the values that a link delivers."""
    first = blueprint.type_of(link.sources[0])
    if link.pick == "first_non_null":
        return replace(first, optional=False)
    optional = any(blueprint.type_of(source).optional for source in link.sources) and not link.pick
    if link.merge == "merge_flattened":
        return replace(first, depth=max(1, first.depth), optional=optional)
    if link.merge == "merge_nested" or link.pick:
        return replace(first, depth=first.depth + 1, optional=optional)
    return first


def without_unused(blueprint: Blueprint) -> Blueprint:
    """Remove the steps that no result needs."""
    while True:
        used = set(blueprint.used())
        steps = tuple(s for s in blueprint.steps if any(s.source_of(output.port) in used for output in s.outputs))
        if len(steps) == len(blueprint.steps):
            return blueprint
        blueprint = replace(blueprint, steps=steps)
