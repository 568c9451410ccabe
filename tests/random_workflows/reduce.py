"""The smallest blueprint that still shows what a larger one showed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .blueprint import FIELDS, Blueprint, Given, Link, Output, Step, Type, without_unused


def reduce(blueprint: Blueprint, shows: Callable[[Blueprint], bool]) -> Blueprint:
    """Take away what is not needed, one thing after the other, until nothing more can go.

    :param shows: whether a blueprint still shows it
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(blueprint):
            if shows(candidate):
                blueprint, smaller = candidate, True
                break
    return blueprint


def candidates(blueprint: Blueprint) -> Iterator[Blueprint]:
    """Blueprints with something less, those with much less first."""
    live = without_unused(blueprint)
    has_dead = live != blueprint
    if has_dead:
        yield live

    def trimmed(smaller: Blueprint) -> Blueprint:
        return smaller if has_dead else without_unused(smaller)

    for index in reversed(range(len(blueprint.steps))):
        yield trimmed(_without_step(blueprint, index))
    for link in blueprint.results:
        if len(blueprint.results) > 1:
            yield trimmed(replace(blueprint, results=tuple(other for other in blueprint.results if other != link)))
        for source in link.sources if len(link.sources) > 1 else ():
            fewer = tuple(Link((source,)) if other == link else other for other in blueprint.results)
            yield trimmed(replace(blueprint, results=fewer))
    if blueprint.retries or blueprint.config:
        yield replace(blueprint, retries=False, config=())
    if blueprint.beside:
        yield replace(blueprint, beside=False)
    if blueprint.engine:
        yield replace(blueprint, engine=())
    for index, step in enumerate(blueprint.steps):
        for less in _simpler(step, blueprint):
            yield replace(blueprint, steps=(*blueprint.steps[:index], less, *blueprint.steps[index + 1 :]))


def _without_step(blueprint: Blueprint, index: int) -> Blueprint:
    """The outputs of a step are given to the workflow instead; if nothing else is a result, the step's input becomes
    one.
    """
    step = blueprint.steps[index]
    made = {step.source_of(output.port): output for output in step.outputs}
    names = {source: source.replace("/", "_") for source in made}
    given = {
        names[source]: Given(blueprint.types[source], _literal(names[source], blueprint.types[source]))
        for source in made
    }

    def elsewhere(link: Link) -> Link:
        return replace(link, sources=tuple(names.get(source, source) for source in link.sources))

    steps = tuple(
        replace(other, links=tuple((name, elsewhere(link)) for name, link in other.links))
        for other in blueprint.steps
        if other is not step
    )
    results = tuple(link for link in blueprint.results if not set(link.sources) & made.keys())
    if not results:
        read = {source for _, link in step.links for source in link.sources if source in blueprint.types}
        results = tuple(Link((source,)) for source in sorted(read))
    used = {source for other in steps for _, link in other.links for source in link.sources}
    kept = {name: value for name, value in given.items() if name in used}
    return replace(blueprint, given={**blueprint.given, **kept}, steps=steps, results=results)


def _literal(name: str, kind: Type) -> object:
    """Some value of a type."""
    if kind.depth:
        inner = replace(kind, depth=kind.depth - 1)
        return [_literal(f"{name}-{index}", inner) for index in range(2)]
    if kind.kind == "pair":
        return {field: _literal(f"{name}-{field}", Type("File")) for field in FIELDS}
    if kind.kind == "int":
        return sum(map(ord, name)) % 5
    if kind.kind == "Directory":
        return {"class": "Directory", "basename": name, "listing": []}
    return {"name": f"{name}.txt", "lines": 4}


def _simpler(step: Step, blueprint: Blueprint) -> Iterator[Step]:
    used = set(blueprint.used())
    for output in step.outputs:
        if step.source_of(output.port) not in used and len(step.outputs) > 1:
            yield replace(step, outputs=tuple(other for other in step.outputs if other != output))
    for extra in step.extras:
        if extra not in (*step.scatter, "name", "k"):
            links = tuple((name, link) for name, link in step.links if name != extra)
            yield replace(step, extras=tuple(other for other in step.extras if other != extra), links=links)
    if step.wrap and step.wrap not in ("inside", "expression"):
        yield replace(step, wrap="")
    if step.container is not None or step.boxed:
        yield replace(step, container=None, boxed=False)
    if step.bandwidth:
        yield replace(step, bandwidth=())
    if step.io_task:
        yield replace(step, io_task=False, bandwidth=())
    if step.streamable:
        yield replace(step, streamable=False)
    for index, output in enumerate(step.outputs):
        for less in _simpler_output(output):
            yield replace(step, outputs=(*step.outputs[:index], less, *step.outputs[index + 1 :]))
    if step.type == Type("File") and step.reader not in ("cat", "stdin"):
        yield replace(step, reader="cat")


def _simpler_output(output: Output) -> Iterator[Output]:
    if output.hint:
        yield replace(output, hint=())
    if output.streamable:
        yield replace(output, streamable=False)
