"""A blueprint from a seed and a number: what is generated, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, TypeVar

from .blueprint import (
    FIELDS,
    Blueprint,
    Given,
    Link,
    Merge,
    Method,
    Output,
    Step,
    Type,
    Wrap,
    without_unused,
)
from .programs import (
    ALTERNATES,
    ASKED,
    COMPARES,
    CUTS,
    DECLARED,
    DEMANDS,
    EVERY,
    JOINED,
    JSON,
    LARGE,
    LINES,
    MIXED_READERS,
    MIXED_WRITERS,
    PAIR,
    PARTS,
    READERS,
    REFUSES,
    SPLIT,
    TRICKLED,
    WHOLE,
    WRITERS,
)
from .windows import with_windows

T = TypeVar("T")
_FILE: Final = Type("File")
_FILES: Final = Type("File", 1)
#: StreamFlow 0.2.0rc3 does not quote those files of a list that are arguments, so that only some names can be there.
_NAMES_IN_LISTS: Final = ("plain", "ünï", "a+b", "-dash", "a.b.c", "x" * 60, "100%")
_NAMES: Final = (*_NAMES_IN_LISTS, *_NAMES_IN_LISTS, "two words", "#hash", "[x]", "a$b", "*", "b\\")
_HARD_NAMES: Final = ("it's", 'a "b"', " x ", "a;b&c", "-n", "--", "~")
#: Reads its input under another name.
_ANOTHER_NAME: Final = "${ var f = self; f.basename = 'another ' + f.basename; return f; }"
#: The most characters of a name that names are made from.
_LONGEST: Final = 100
#: MB/s that hold back a job that moves some 100 kB.
_LIMITS: Final = (0.2, 1, 20)
_REQUIRED: Final = ("required", "required", "required(1)", "required(2)")
_SHARES: Final = (30, 60, 100, "auto(10,100,3)")
_STORAGES: Final = ({"name": "disk", "path": "/", "write": 100, "read": 100},)
#: Steps that follow each other: the name of the first one, its writer, and the readers of the second one.
_FOLLOWED: Final = (("t", "tree", ("archive", "tree")), ("w", "file", ("twice", REFUSES)))
_MERGES: Final[tuple[Merge, ...]] = ("merge_nested", "merge_flattened")


@dataclass(frozen=True)
class _Value:
    """A value that can be connected.

    :ivar origins: the outputs that its files come from; two values with a common one hold a file twice
    :ivar shape: lists of one shape have one length
    :ivar longest: the length of the longest name of its files
    """

    source: str
    type: Type
    origins: frozenset[str]
    shape: str
    longest: int


_PURPOSES: Final = (
    "",
    ":split",
    ":declared",
    ":limited",
    ":shared",
    ":dead",
    ":paired",
    ":removing",
    ":followed",
    ":windowing",
    ":joining",
    ":comparing",
    ":asking",
    ":mixing",
    ":versioning",
)


@dataclass
class _Draft:
    random: Random
    #: One of its own, so that the others go on as they are.
    splitting: Random
    declaring: Random
    limiting: Random
    sharing: Random
    dying: Random
    pairing: Random
    removing: Random
    following: Random
    windowing: Random
    joining: Random
    comparing: Random
    asking: Random
    mixing: Random
    versioning: Random
    given: dict[str, Given] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    types: dict[str, Type] = field(default_factory=dict)
    values: list[_Value] = field(default_factory=list)
    #: Outputs whose files have other names at first: with hints, only their readers may depend on a name.
    renamed: set[str] = field(default_factory=set)

    @property
    def has_lines(self) -> bool:
        """Whether a step splits a byte stream: that makes many jobs."""
        return any(output.writer == LINES for step in self.steps for output in step.outputs)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choose(self, among: Sequence[T]) -> T:
        return among[self.random.randrange(len(among))]


def generate(seed: int, number: int, most_steps: int = 12) -> Blueprint:
    """The workflow of a number."""
    draft = _Draft(*(Random(f"{seed}:{number}{purpose}") for purpose in _PURPOSES))
    _give(draft)
    for index in range(draft.random.randint(2, most_steps)):
        (_add_expression if draft.chance(0.06) else _add_step)(draft, f"s{index}")
        if draft.declaring.random() < 0.15 and not draft.has_lines:
            _add_lines(draft, f"l{index}")
    for name, writer, reader in _FOLLOWED:
        if draft.following.random() < 0.25:
            _add_followed(draft, name, writer, draft.following.choice(reader))
    config: tuple[tuple[str, Any], ...] = ()
    if draft.chance(0.1):
        config = (("oversubscribe", "never"),)
    if draft.chance(0.15):
        config = (*config, ("observe", True))
    if any(step.bandwidth for step in draft.steps) and draft.limiting.random() < 0.6:
        config = (*config, ("storages", [*_STORAGES]))
    if any(step.reader == "contents" or any(o.writer == "count" for o in step.outputs) for step in draft.steps):
        # CWL reads the contents of 64 kB at most.
        large = draft.given["file"]
        draft.given["file"] = replace(large, value={**large.value, "lines": min(large.value["lines"], 40)})
    results, retries = _results(draft), draft.chance(0.4)
    beside = draft.sharing.random() < 0.25
    if beside:
        draft.steps = [_with_share(draft.sharing, step) for step in draft.steps]
        config = tuple({**dict(config), "storages": [*_STORAGES]}.items())
    if draft.removing.random() < 0.5:
        config = (*config, ("intermediates", "remove"))
        # Files are small, but nothing is known of a step before its first job has ended.
        if draft.removing.random() < 0.5:
            config = (*config, ("diskLimit", "1GB"))
    is_old = draft.versioning.random() < 0.3
    blueprint = Blueprint(draft.given, tuple(draft.steps), results, draft.types, retries, config, beside, is_old=is_old)
    if draft.windowing.random() < 0.25:
        blueprint = replace(with_windows(blueprint), retries=False)
    return _with_dead_branches(draft.dying, blueprint) if draft.dying.random() < 0.3 else blueprint


def _with_dead_branches(random: Random, blueprint: Blueprint) -> Blueprint:
    """Fewer results, so that nothing needs some steps; these take long now and then."""
    first, *others = random.sample(blueprint.results, len(blueprint.results))
    results = (first, *(link for link in others if random.random() < 0.5))
    blueprint = replace(blueprint, results=results)
    live = without_unused(blueprint).steps

    def slowed(step: Step) -> Step:
        is_one_job = not step.scatter and step.wrap != "expression"
        if step in live or not is_one_job or random.random() < 0.4:
            return step
        return replace(step, extras=(*step.extras, "slow"))

    return replace(blueprint, steps=tuple(map(slowed, blueprint.steps)))


def _give(draft: _Draft) -> None:
    name = draft.choose(_NAMES)
    lines = draft.choose((0, 3, 40, 40, 40, 2_000, 20_000))
    if draft.mixing.random() < 0.2:
        name = draft.mixing.choice(_HARD_NAMES)
    first = name if name in _NAMES_IN_LISTS else "first"
    files = [{"name": f"{other}-{index}.txt", "lines": 3 + index} for index, other in enumerate((first, "in", "b"))]
    draft.given = {
        "file": Given(_FILE, {"name": f"{name}.dat", "lines": lines}),
        "files": Given(_FILES, files[: draft.choose((0, 1, 3, 3))]),
        "numbers": Given(Type("int", 1), [3, 1, 2][: draft.choose((0, 1, 3, 3, 3))]),
        "number": Given(Type("int"), 4),
        "folder": Given(Type("Directory"), {"name": f"{name}.dir", "files": files}),
    }
    for key, given in draft.given.items():
        draft.values.append(_Value(key, given.type, frozenset({key}), key, len(name) + 3))


def _add_step(draft: _Draft, name: str) -> None:
    value, link, kind = _main_input(draft)
    scatter, method, wrap = _scattering(draft, value, link, kind)
    kind = replace(kind, depth=kind.depth - 1) if "i" in scatter else kind
    readers = [
        key
        for key, reader in READERS.items()
        if key not in (REFUSES, JOINED, COMPARES, *MIXED_READERS)
        and (kind.kind, kind.depth) in reader.accepts
        and (reader.optional or not kind.optional)
    ]
    if not readers:
        return
    reader = draft.choose(readers)
    is_wrong = READERS[reader].wrong and draft.declaring.random() < 0.6
    if is_wrong:
        reader = draft.declaring.choice((reader, REFUSES))
    is_joined = reader == "all" and kind == _FILES and draft.joining.random() < 0.5
    if is_joined:
        reader = JOINED
    if kind == _FILE and not scatter and draft.comparing.random() < 0.3:
        reader, is_wrong = COMPARES, False
    elif kind.kind == "File" and kind.depth == 0 and draft.mixing.random() < 0.35:
        reader = draft.mixing.choice([key for key in MIXED_READERS if READERS[key].optional or not kind.optional])
        is_wrong = READERS[reader].wrong and draft.mixing.random() < 0.6
    named = kind in (_FILE, Type("int")) and (bool(scatter) or draft.chance(0.3)) and value.longest < _LONGEST
    if "i" in scatter and not named:
        return
    links = {"i": link}
    extras = _extras(draft, value, kind, scatter, links, named, inside=wrap == "inside")
    if reader == COMPARES:
        extras.append(COMPARES)
        files = [each.source for each in draft.values if each.type == _FILE]
        made = [source for source in files if "/" in source and source not in link.sources]
        links[COMPARES] = Link((draft.comparing.choice(made or files),))
    if reader == ALTERNATES:
        extras.append(ALTERNATES)
        links[ALTERNATES] = Link((draft.mixing.choice([each.source for each in draft.values if each.type == _FILE]),))
    if reader == DEMANDS and draft.mixing.random() < 0.9:
        extras.append("codes")
    if kind == _FILE and reader != "edits" and draft.mixing.random() < 0.05:
        links["i"] = replace(link, value_from=_ANOTHER_NAME)
    wide = "j" in scatter or "name" in extras
    outputs = _with_mixed(draft, _with_pair(draft, _outputs(draft, wide)))
    if reader == DEMANDS:
        outputs = outputs[:1]  # the others are not made where it fails
    when = draft.choose((True, False)) if draft.chance(0.12) and not wrap else None
    if when is None and kind == _FILE and not wrap and draft.mixing.random() < 0.1:
        extras.append(LARGE)
        when = True
    step = Step(
        name, reader, kind, tuple(links.items()), outputs, tuple(extras), scatter, method, when, wrap, named,
        streamable=is_wrong or is_joined or (READERS[reader].once and draft.chance(0.7)), io_task=draft.chance(0.2),
    )  # fmt: skip
    step = replace(step, bandwidth=_bandwidth(draft.limiting) if step.io_task else ())
    if kind == _FILE and not (wide or step.streamable or READERS[reader].stdin):
        step = _with_split(draft, step)
    if _can_loop(step) and draft.chance(0.15):
        step = replace(step, wrap="loop", when=None)
    draft.steps.append(step)
    _produce(draft, step, value)


def _bandwidth(random: Random) -> tuple[tuple[str, Any], ...]:
    """How fast an I/O task may move its data."""
    directions: dict[str, Any] = random.choice(({}, {}, {"direction": "read"}, {"direction": "both"}))
    match random.randrange(4):
        case 0:
            return ()
        case 1:
            return tuple({"storageBW": random.choice(_LIMITS), "limited": True, **directions}.items())
    within: dict[str, Any] = {"within": random.choice((0.1, 1, 60))} if random.random() < 0.5 else {}
    return tuple({"storageBW": random.choice(_REQUIRED), **within, **directions}.items())


def _with_share(random: Random, step: Step) -> Step:
    """A step that holds some of the bandwidth while it runs, which others, and the run beside it, lack."""
    if step.bandwidth or step.wrap == "expression" or random.random() < 0.4:
        return step
    direction = random.choice(("read", "write", "write", "both"))
    return replace(step, bandwidth=(("storageBW", random.choice(_SHARES)), ("direction", direction)))


def _add_expression(draft: _Draft, name: str) -> None:
    value, link, kind = _main_input(draft)
    step = Step(name, "cat", kind, (("i", link),), (Output("o0", "file"),), wrap="expression")
    source = step.source_of("o0")
    draft.steps.append(step)
    draft.types[source] = kind
    draft.values.append(replace(value, source=source, type=kind))


def _add_lines(draft: _Draft, name: str) -> None:
    """A step that splits a byte stream, if there is one, by a rule that is true of it; and one that reads the parts."""
    outputs = {step.source_of(output.port): output for step in draft.steps for output in step.outputs}
    streams = [
        value
        for value in draft.values
        if value.type == _FILE and (output := outputs.get(value.source)) is not None
        and (output.streamable or dict(output.hint).get("mode") == "no_update")
    ]  # fmt: skip
    if not streams:
        return
    random = draft.declaring
    value = random.choice(streams)
    output = Output("o0", LINES, hint=(*EVERY.items(), ("names", f"{name}-o0-%03d.line")))
    split = Step(name, random.choice(WHOLE), _FILE, (("i", Link((value.source,))),), (output,), streamable=True)
    reader, wrap = (
        random.choice(("cat", "slow", "late", "twice", REFUSES, "asks", "sort")),
        random.choice(("", "", "workflow")),
    )
    read = Step(
        f"{name}r", reader, _FILE, (("i", Link((split.source_of("o0"),))),), (Output("o0", "file"),), scatter=("i",),
        named=True, wrap=wrap, streamable=(READERS[reader].once or READERS[reader].wrong) and random.random() < 0.7,
    )  # fmt: skip
    for step in (split, read):
        draft.steps.append(step)
        _produce(draft, step, replace(value, longest=len(name) + 12))


def _add_followed(draft: _Draft, name: str, writer: str, reader: str) -> None:
    """A step that writes a stream, or a directory at the gate, and one that reads what is not complete.

    Both occur together rarely where each is drawn alone.
    """
    random = draft.following
    value = random.choice([value for value in draft.values if value.type == _FILE])
    is_stream = WRITERS[writer].once
    rules = [rule for rule in WRITERS[writer].rules if rule.get("start") == "producer"]
    hint = () if is_stream else tuple(random.choice(rules).items())
    output = Output("o0", writer, streamable=is_stream, hint=hint)
    write = Step(name, random.choice(WHOLE), _FILE, (("i", Link((value.source,))),), (output,))
    read = Step(
        f"{name}r", reader, WRITERS[writer].type, (("i", Link((write.source_of("o0"),))),), (Output("o0", "file"),),
        streamable=is_stream,
    )  # fmt: skip
    for step in (write, read):
        draft.steps.append(step)
        _produce(draft, step, replace(value, longest=len(name) + 12))


def _main_input(draft: _Draft) -> tuple[_Value, Link, Type]:
    """Choose the input of the step, mostly from the last steps; merged with something else now and then."""
    recent = draft.values[-6:]
    value = draft.choose(recent if draft.chance(0.75) else draft.values)
    link, kind = Link((value.source,)), value.type
    others = [v for v in draft.values if v.type == value.type and not v.origins & value.origins]
    if draft.chance(0.15) and kind.kind == "File" and kind.depth < 2 and not kind.optional:
        merge = draft.choose(_MERGES)
        other = draft.choose(others) if others and draft.chance(0.7) else None
        if other is None and merge == "merge_nested" and kind.depth > 0:
            return value, link, kind
        sources = (value.source,) if other is None else (value.source, other.source)
        depth = max(1, kind.depth) if merge == "merge_flattened" else kind.depth + 1
        value = value if other is None else replace(
            value, origins=value.origins | other.origins, longest=max(value.longest, other.longest)
        )  # fmt: skip
        value = replace(value, shape=f"{value.shape}+{'+'.join(sources)}")
        return value, Link(sources, merge=merge), replace(kind, depth=depth)
    if kind == Type("File", optional=True) and draft.chance(0.6):
        files = [v for v in draft.values if v.type == _FILE and not v.origins & value.origins]
        if files:
            other = draft.choose(files)
            merged = replace(value, origins=value.origins | other.origins, longest=max(value.longest, other.longest))
            if draft.chance(0.5):
                return merged, Link((value.source, other.source), pick="first_non_null"), _FILE
            listed = replace(merged, shape=f"picked {value.source} {other.source}")
            return listed, Link((value.source, other.source), pick="all_non_null"), _FILES
    if kind == Type("pair") and draft.pairing.random() < 0.5:
        return value, replace(link, value_from=f"$(self.{draft.pairing.choice(FIELDS)})"), _FILE
    if kind.depth == 2 and draft.chance(0.5):
        flat = replace(value, shape=f"flat {value.source}")
        return flat, Link((value.source,), merge="merge_flattened"), replace(kind, depth=1)
    if kind.kind == "File" and draft.chance(0.05):
        link = replace(link, value_from="$(self)")
    return value, link, kind


def _scattering(draft: _Draft, value: _Value, link: Link, kind: Type) -> tuple[tuple[str, ...], Method, Wrap]:
    """Over what the step is scattered, how, and whether in a subworkflow."""
    wrap: Wrap = draft.choose(("workflow", "inside")) if draft.chance(0.15) else ""
    if kind.depth == 1 and kind.kind in ("File", "int") and not kind.optional and draft.chance(0.75):
        if draft.chance(0.3):
            return ("i", "j"), draft.choose(("flat_crossproduct", "nested_crossproduct")), wrap
        return ("i",), "", wrap
    if kind.depth == 0 and draft.chance(0.15):
        return ("j",), "", wrap
    return (), "", wrap


def _extras(
    draft: _Draft,
    value: _Value,
    kind: Type,
    scatter: tuple[str, ...],
    links: dict[str, Link],
    named: bool,
    inside: bool,
) -> list[str]:
    likely = {
        "optional": 0.15,
        "default": 0.15,
        "constant": 0.15,
        "absent": 0.1,
        "literal": 0.08,
        "staged": 0.08,
        "limit": 0.1,
    }
    extras = [extra for extra, probability in likely.items() if draft.chance(probability)]
    if kind == _FILE and draft.chance(0.05):
        extras.append("stages")
    if kind == _FILE and draft.asking.random() < 0.1:
        extras.append(ASKED)
    if kind == _FILE and not named and "stages" not in extras and draft.mixing.random() < 0.08:
        extras.append("updates")
    if "constant" in extras:
        links["constant"] = Link(value_from="a constant")
    if "staged" in extras:
        links["staged"] = Link(("file",))
    if "j" in scatter:
        extras.append("j")
        links["j"] = Link(("numbers",))
    elif named and kind == _FILE and not inside and not value.origins & draft.renamed and draft.chance(0.35):
        extras.append("name")
        made = f"$(inputs.i.nameroot)-{len(draft.steps)}"
        links["name"] = Link(("number",) if draft.chance(0.5) else (), value_from=made)
    if "i" in scatter and "j" not in scatter and draft.chance(0.2):
        same = [v for v in draft.values if v.type == _FILES and v.shape == value.shape]
        if same and not links["i"].merge:
            extras.append("k")
            links["k"] = Link((draft.choose(same).source,))
    return extras


def _outputs(draft: _Draft, wide: bool) -> tuple[Output, ...]:
    count = draft.choose((1, 1, 1, 2, 3))
    # Where there are many jobs, lists of lists of lists would follow.
    writers = [
        name
        for name, writer in WRITERS.items()
        if name not in (JSON, SPLIT, DECLARED, LINES, PAIR, TRICKLED, *MIXED_WRITERS)
        and not (wide and writer.type.depth)
    ]
    chosen = [draft.choose(writers) for _ in range(count)]
    if count == 1 and draft.chance(0.05):
        chosen = [JSON]
    unique = list(dict.fromkeys(chosen))
    if "stdout" in unique:
        # StreamFlow writes standard error there, too, and then waits for nothing that goes on in the background.
        unique = [writer for writer in unique if writer != "background"]
    return tuple(_output(draft, f"o{index}", writer) for index, writer in enumerate(unique))


def _with_pair(draft: _Draft, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Now and then the first output, if it is a file, is a record of two."""
    first, *others = outputs
    random = draft.pairing
    if WRITERS[first.writer].type != _FILE or first.writer == JSON or random.random() > 0.25:
        return outputs
    rule = random.choice(WRITERS[PAIR].rules) if random.random() < 0.4 else {}
    return (Output(first.port, PAIR, random.random() < 0.7, tuple(rule.items())), *others)


def _with_mixed(draft: _Draft, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Now and then the first output is a file that is written in another way."""
    first, *others = outputs
    random = draft.mixing
    if WRITERS[first.writer].type != _FILE or first.writer == JSON or random.random() > 0.25:
        return outputs
    name = random.choice(MIXED_WRITERS)
    rules = WRITERS[name].rules
    rule = random.choice(rules) if random.random() < 0.6 else {}
    return (Output(first.port, name, WRITERS[name].once and random.random() < 0.6, tuple(rule.items())), *others)


def _output(draft: _Draft, port: str, name: str) -> Output:
    writer = WRITERS[name]
    rule = draft.choose(writer.rules) if writer.rules and draft.chance(0.6) else {}
    return Output(port, name, streamable=writer.once and draft.chance(0.6), hint=tuple(rule.items()))


def _with_split(draft: _Draft, step: Step) -> Step:
    """A step whose tool splits its input now and then, and mostly says where."""
    *others, last = step.outputs
    if last.writer == JSON or draft.splitting.random() > 0.3:
        return step
    hint: tuple[tuple[str, Any], ...] = (("of", "i"),) if draft.splitting.random() < 0.9 else ()
    step = _with_own_file(draft, step)
    if not step.named and "name" not in step.extras and draft.declaring.random() < 0.5:
        # Each job of the step has the same names then.
        hint = (*CUTS.items(), ("names", f"{step.name}-{last.port}-b%d"))
        return replace(step, outputs=(*others, Output(last.port, DECLARED, hint=hint)))
    return replace(step, outputs=(*others, Output(last.port, SPLIT, hint=hint)))


def _with_own_file(draft: _Draft, step: Step) -> Step:
    """Let a step read an input of the workflow, now and then, which mostly no other step reads."""
    if "i" in step.scatter or "stages" in step.extras or draft.splitting.random() > 0.4:
        return step
    source, name = f"own{len(draft.given)}", _NAMES[draft.splitting.randrange(len(_NAMES))]
    draft.given[source] = Given(_FILE, {"name": f"{name}.own", "lines": draft.splitting.choice((0, 3, 40, 20_000))})
    if draft.splitting.random() < 0.2:
        draft.types[source] = _FILE
    return replace(step, links=tuple({**dict(step.links), "i": Link((source,))}.items()))


def _can_loop(step: Step) -> bool:
    return (
        step.type == _FILE
        and not step.scatter
        and not step.wrap
        and not step.named
        and [WRITERS[output.writer].type for output in step.outputs] == [_FILE]
        and not {"name", "stages"} & set(step.extras)
    )


def _produce(draft: _Draft, step: Step, value: _Value) -> None:
    levels = len(step.scatter) if step.method == "nested_crossproduct" else min(1, len(step.scatter))
    for output in step.outputs:
        made = WRITERS[output.writer].type
        kind = replace(made, depth=made.depth + levels, optional=made.optional or step.when is not None)
        source = step.source_of(output.port)
        draft.types[source] = kind
        if output.writer == "renamed":
            draft.renamed.add(source)
        if kind.depth > 2 or (step.when is not None and kind.depth):
            continue
        if step.scatter:
            shape = value.shape if step.scatter == ("i",) and made.depth == 0 else f"of {step.name}"
        else:
            shape = f"{PARTS} parts" if made.depth and output.writer != LINES else source
        longest = (value.longest if step.named else 0) + len(step.name) + 8
        draft.values.append(_Value(source, kind, frozenset({source}), shape, longest))


def _results(draft: _Draft) -> tuple[Link, ...]:
    """All that nothing reads, and some of the rest; two lists become one now and then."""
    used = {source for step in draft.steps for _, link in step.links for source in link.sources}
    # Parts of a split would have to be written.
    parts = {step.source_of(output.port) for step in draft.steps for output in step.outputs if output.writer == LINES}
    values = [s for s in draft.types if s not in used or (draft.chance(0.3) and s not in parts)]
    links = []
    while values:
        source = values.pop(0)
        same = [other for other in values if draft.types[other] == draft.types[source]]
        if same and draft.chance(0.15) and draft.types[source].depth < 2:
            other = draft.choose(same)
            values.remove(other)
            links.append(Link((source, other), merge=draft.choose(_MERGES)))
        else:
            links.append(Link((source,)))
    return tuple(links)
