"""How the tools of random workflows read and write, and which hints are true of that.

A hint is drawn only where it is true of the tool: what is false may fail, and nothing is learned from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .blueprint import Type

Rule = Mapping[str, Any]
_DEFAULT: Rule = {"committed": "on_termination"}
_STREAM: Rule = {**_DEFAULT, "mode": "no_update"}
_GATE: Rule = {**_DEFAULT, "start": "producer"}
_CLOSE: Rule = {"committed": "on_close"}
_CLOSE_STREAM: Rule = {**_CLOSE, "mode": "no_update"}
_CLOSE_GATE: Rule = {**_CLOSE, "start": "producer"}
_TWICE: Rule = {"committed": "on_close:2"}

#: The number of files of a list.
PARTS: Final = 3
#: The number of files of a directory, one of them in a directory below.
LEAVES: Final = 4


@dataclass(frozen=True)
class Reader:
    """How a tool reads its input `i`, which is its argument.

    :ivar once: it reads once, front to back, and asks nothing by path, so that `streamable` is true of it
    :ivar wrong: it fails with a stream, so that `streamable` is not true of it, and is declared all the same
    :ivar stdin: the input is its standard input, and no argument
    :ivar optional: its input may be null
    :ivar needs: what of the input is asked for by an expression; its value is in `$NEEDED`
    :ivar binding: more of its `inputBinding`
    :ivar fields: more of the input in CWL
    """

    script: str
    accepts: tuple[tuple[str, int], ...] = (("File", 0),)
    once: bool = False
    wrong: bool = False
    stdin: bool = False
    optional: bool = False
    needs: str = ""
    binding: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


#: What it makes depends on how large the file is that it has open, as with `wc`: that is seen only where it is tried.
SIZED: Final = "sized"
#: A tool that refuses a pipe. Drawn only with a wrong declaration.
REFUSES: Final = "refuses"
#: A tool that reads a list of files, each once. Drawn only in place of another reader of lists.
JOINED: Final = "joined"
#: A tool that reads two files, each once. Its output differs only if both are streams, as with `cmp -l`.
COMPARES: Final = "compares"
#: A tool that reads two files, a line of each in turn.
ALTERNATES: Final = "alternates"
#: A tool that reads all of its input, and then fails if that is small.
DEMANDS: Final = "demands"
#: These are drawn in place of others that read a file.
MIXED_READERS: Final = ("edits", ALTERNATES, DEMANDS, "with index", "stdin or none")
#: A tool that reads a pipe up to a buffer, and does something else beyond that.
BUFFERED: Final = "buffered"
#: A tool that asks for the size of its input, in an environment variable, and where the step has a condition.
ASKED: Final = "asked"
#: The step has a condition on the size of its input.
LARGE: Final = "large"
_SPLIT = 'd=$(mktemp -d); split -n 2 "$1" "$d/part" 2> /dev/null || echo too large; cat "$d"/* "$1"; rm -r "$d"'
_SIZES = 's=$(stat -c %s -); t=$(stat -c %s - <&3); [ "$s$t" != 00 ] || echo no sizes'
_BOTH = f'{{ {_SIZES}; cat; cat <&3; }} < "$1" 3< "$EXTRA_{COMPARES}"'
_TURNS = 'for k in 1 2 3 4 5; do for f in 3 4; do if IFS= read -r l <&$f; then echo "$l"; fi; done; done'
_ALTERNATE = f'{{ {_TURNS}; cat <&3; cat <&4; }} 3< "$1" 4< "$EXTRA_{ALTERNATES}"'
_WALK = "find . | LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r cat"
_LINES = 'for k in 1 2 3; do IFS= read -r l || break; echo "$l"; sleep 0.03; done; cat'
READERS: Final[Mapping[str, Reader]] = {
    "cat": Reader('cat "$@"', once=True),
    "stdin": Reader("cat", once=True, stdin=True),
    "late": Reader('sleep 0.1; cat "$1"', once=True),
    "slow": Reader(f'{{ {_LINES}; }} < "$1"', once=True),
    "head": Reader('head -n 2 "$1"', once=True),
    "sort": Reader('LC_ALL=C sort "$1"', once=True),
    "name": Reader('echo "$NEEDED"; cat "$1"', once=True, needs="$(inputs.i.basename) $(inputs.i.nameext)"),
    "twice": Reader('wc -l < "$1"; cat "$1"', wrong=True),
    REFUSES: Reader('{ [ "$(stat -c %F -)" != fifo ] || exit 7; cat; } < "$1"', wrong=True),
    SIZED: Reader('{ s=$(stat -c %s -); [ "$s" -eq 0 ] || [ "$s" -ge 9999 ] || echo short; cat; } < "$1"'),
    BUFFERED: Reader(_SPLIT),
    COMPARES: Reader(_BOTH),
    ALTERNATES: Reader(_ALTERNATE, once=True),
    DEMANDS: Reader('tee .all < "$1"; [ "$(wc -c < .all)" -ge 5000 ] || exit 9', once=True),
    "edits": Reader('sed -i s/line/row/ "$1"; cat "$1"', wrong=True),
    "with index": Reader(
        'cat "$1"; [ ! -e "$1.idx" ] || cat "$1.idx"',
        once=True,
        fields={"secondaryFiles": [{"pattern": ".idx", "required": False}]},
    ),
    "stdin or none": Reader("cat", once=True, stdin=True, optional=True),
    "asks": Reader('if [ -s "$1" ]; then cat "$1"; else echo nothing; fi'),
    "size": Reader('echo "$NEEDED"; cat "$1"', needs="$(inputs.i.size)"),
    "contents": Reader('echo "$NEEDED"', needs="$(inputs.i.contents.length)", binding={"loadContents": True}),
    "perhaps": Reader('if [ $# -eq 0 ]; then echo null; else cat "$@"; fi', optional=True),
    "tree": Reader(f'cd "$1"; {_WALK}', accepts=(("Directory", 0),)),
    "archive": Reader(
        f'tar -cf .all -C "$1" .; mkdir .copy; tar -xf .all -C .copy; cd .copy; {_WALK}', accepts=(("Directory", 0),)
    ),
    "leaves": Reader('for k in "$1"/*; do echo "${k##*/}"; [ -d "$k" ] || cat "$k"; done', accepts=(("Directory", 0),)),
    "all": Reader(
        'for k in "$@"; do echo "${k##*/}"; head -c 3000 "$k"; done', accepts=(("File", 1), ("File", 2)), optional=True
    ),
    JOINED: Reader('for k in "$@"; do cat "$k"; done', accepts=(("File", 1),), once=True, optional=True),
    "pair": Reader('cat "$1" "$2"', accepts=(("pair", 0),), once=True),
    "numbers": Reader('for k in "$@"; do seq "$k"; done', accepts=(("int", 0), ("int", 1)), optional=True),
}


_FILE: Final = Type("File")


@dataclass(frozen=True)
class Writer:
    """How a tool writes an output from its standard input. `$N` is the name without its end.

    :ivar glob: what finds it; `{n}` is the name
    :ivar rules: hints that are true of it, besides that nothing is known
    :ivar once: it is written front to back and never changed, so that `streamable` is true of it
    :ivar fields: more of the output in CWL
    :ivar binding: more of its `outputBinding`
    """

    script: str
    glob: str
    rules: tuple[Rule, ...] = (_DEFAULT, _GATE)
    type: Type = _FILE
    once: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    binding: Mapping[str, Any] = field(default_factory=dict)


_SLOWLY = 'for k in 1 2 3; do IFS= read -r l || break; printf "%s\\n" "$l"; sleep 0.02; done; cat'
_SPLIT = 'cat > .parts; for k in 2 1 3; do { echo "$k"; head -c 400 .parts; } > "$N-$k.part"; sleep 0.04; done'
_SAY = """printf '{"path": "%s-%s.cut", "extents": [[%s, %s]]}\\n' "$(printf %s "$N" | sed 's/\\\\/&&/g')" """
_CUT = f"""cat > /dev/null; N="${{N#./}}"; S=$(wc -c < "$1"); for k in 2 1 3; do O=$((S / 3 * (k - 1)))
L=$((S / 3)); [ $k = 3 ] && L=$((S - O)); if [ "$SFIO_PARTS" ]; then {_SAY} $k $O $L >> "$SFIO_PARTS"
else tail -c +$((O + 1)) "$1" > .tail; head -c $L .tail > "./$N-$k.cut"; fi; sleep 0.03; done"""
_BYTES = f"""cat > /dev/null; S=$(wc -c < "$1"); for k in 1 2 3; do O=$((S * (k - 1) / {PARTS}))
tail -c +$((O + 1)) "$1" > .tail; head -c $((S * k / {PARTS} - O)) .tail > "$N-b$k"; done"""
_SPLIT_LINES = """N="$N" awk '{ f = sprintf("%s-%03d.line", ENVIRON["N"], int((NR - 1) / 12) + 1)
if (f != last) { if (last) close(last); last = f }; print > f }'"""
_LEAF = 'cp .leaf "$N.d/leaf $k"; sleep 0.03'
_GROW = f'mkdir "$N.d" "$N.d/sub"; cat > .leaf; for k in 1 2 3; do {_LEAF}; done; cp .leaf "$N.d/sub/x"'
# Long enough for its readers to come, and to take some of it.
_TRICKLE = 'while head -c 100000 > .piece && [ -s .piece ]; do cat .piece; sleep 0.03; done > "$N.bit"'
_PATCH = 'cat > "$N.bin"; sleep 0.03; printf X | dd of="$N.bin" conv=notrunc status=none'
_ALL_PARTS: Rule = {"committed": "on_n_files", "nFiles": PARTS}
_ALL_LEAVES: Rule = {"committed": "on_n_files", "nFiles": LEAVES}
_ONCE = (_DEFAULT, _STREAM, _GATE, _CLOSE, _CLOSE_STREAM)
_MAYBE = Type("File", optional=True)
_MANY = Type("File", 1)
WRITERS: Final[Mapping[str, Writer]] = {
    "stdout": Writer(_SLOWLY, "{n}.txt", (_DEFAULT, _STREAM, _GATE), once=True),
    "file": Writer(f'{{ {_SLOWLY}; }} > "$N.txt"', "{n}.txt", (*_ONCE, _CLOSE_GATE), once=True),
    "pattern": Writer(f'{{ {_SLOWLY}; }} > "$N.some"', "{n}.so*", _ONCE, once=True),
    "computed": Writer('cat > "$N.js"', "$((function(){return '{n}.js';})())", _ONCE, once=True),
    "appended": Writer(
        'head -n 1 > "$N.log"; cat > /dev/null; echo more >> "$N.log"', "{n}.log",
        (_DEFAULT, _STREAM, _GATE, _TWICE, {**_TWICE, "start": "producer"}), once=True,
    ),
    "empty": Writer('cat > /dev/null; : > "$N.none"', "{n}.none", _ONCE, once=True),
    "moved": Writer('cat > .tmp; sleep 0.03; mv .tmp "$N.moved"', "{n}.moved"),
    "renamed": Writer(
        f'{{ {_SLOWLY}; }} > "$N.fint"; sleep 0.03; mv "$N.fint" "$N.fin"', "{n}.fin*",
        (_DEFAULT, _STREAM, _GATE), once=True,
    ),
    "trickled": Writer(_TRICKLE, "{n}.bit", (), once=True),
    "patched": Writer(_PATCH, "{n}.bin"),
    "background": Writer('cat > .b; { sleep 0.15; cat .b > "$N.late"; } &', "{n}.late", (_DEFAULT, _STREAM, _GATE)),
    "edited": Writer('cat > "$N.ed"; sleep 0.03; sed -i s/line/row/ "$N.ed"', "{n}.ed"),
    "sorted": Writer('cat > "$N.in"; LC_ALL=C sort -o "$N.in" "$N.in"', "{n}.in"),
    "goes on": Writer('cat > "$N.first"; sleep 0.3', "{n}.first", (*_ONCE, _CLOSE_GATE), once=True),
    "index first": Writer(
        'cat > .all; wc -c < .all > "$N.pre.idx"; sleep 0.03; cat .all > "$N.pre"', "{n}.pre",
        (_DEFAULT, _CLOSE, _GATE), fields={"secondaryFiles": [".idx"]},
    ),
    "perhaps": Writer('cat > "$N.opt"', "{n}.opt", (_DEFAULT, _CLOSE, _GATE), _MAYBE),
    "never": Writer("cat > /dev/null", "{n}.no", (_DEFAULT, _CLOSE, _GATE), _MAYBE),
    "indexed": Writer(
        'tee "$N.dat" > /dev/null; wc -c < "$N.dat" > "$N.dat.idx"', "{n}.dat", (_DEFAULT, _CLOSE, _GATE),
        fields={"secondaryFiles": [".idx"]},
    ),
    "formatted": Writer('cat > "$N.csv"', "{n}.csv", (_DEFAULT, _CLOSE), fields={"format": "file:///formats/csv"}),
    "linked": Writer('cat > "$N.real"; ln -s "$PWD/$N.real" "$N.link"', "{n}.link"),
    "list": Writer(_SPLIT, "{n}-*.part", (_DEFAULT, _CLOSE, _ALL_PARTS, _GATE, _CLOSE_GATE), _MANY),
    "cut": Writer(_CUT, "{n}-*.cut", (), _MANY),
    "bytes": Writer(_BYTES, "{n}-b*", (), _MANY),
    "lines": Writer(_SPLIT_LINES, "{n}-*.line", (), _MANY),
    "nothing": Writer("cat > /dev/null", "{n}-*.nothing", (_DEFAULT, _CLOSE, _GATE), _MANY),
    "tree": Writer(
        _GROW, "{n}.d", (_DEFAULT, _GATE, _CLOSE_GATE, _ALL_LEAVES, {**_ALL_LEAVES, "start": "producer"}),
        Type("Directory"),
    ),
    "pair": Writer(f'{{ {_SLOWLY}; }} | tee "$N.a" | tr a-z A-Z > "$N.b"', "{n}", _ONCE, Type("pair"), once=True),
    "named": Writer('cat > "$N.out"', "{n}.out", ()),
    "count": Writer(
        'cat > "$N.size"', "{n}.size", (), Type("int"),
        binding={"loadContents": True, "outputEval": "$(self[0].contents.length % 5)"},
    ),
}  # fmt: skip
#: This one writes the two files of a record.
PAIR: Final = "pair"
#: This one is for workflows with windows.
TRICKLED: Final = "trickled"
#: This one is named by `cwl.output.json`, too.
JSON: Final = "named"
#: This one writes parts of the input `i`, a file that it may read several times, or says them.
SPLIT: Final = "cut"
#: This one writes them, and cannot say them.
DECLARED: Final = "bytes"
#: What is true of it, but for the names of the parts.
CUTS: Final[Rule] = {"of": "i", "records": "bytes", "parts": PARTS}
#: This one writes parts of its input. Nothing else may say anything of them, and it can read the input front to back.
LINES: Final = "lines"
#: What is true of it, but for the names of the parts.
EVERY: Final[Rule] = {"of": "i", "records": "lines", "every": 12}
#: These are drawn in place of others that write a file.
MIXED_WRITERS: Final = ("edited", "sorted", "goes on", "index first")
#: Writers that pass on what they read, and nothing else.
WHOLE: Final = ("cat", "stdin", "late", "slow")


@dataclass(frozen=True)
class Extra:
    """Further declarations of a tool.

    :ivar script: what it does with it
    :ivar inputs: more of its inputs
    :ivar value: what `$EXTRA_name` is in its environment
    :ivar variables: more of its environment
    :ivar staged: an entry of its InitialWorkDirRequirement
    :ivar requirement: one more
    :ivar fields: more of the tool in CWL
    """

    script: str = ":"
    inputs: Mapping[str, Any] = field(default_factory=dict)
    value: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    staged: Mapping[str, Any] = field(default_factory=dict)
    requirement: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


EXTRAS: Final[Mapping[str, Extra]] = {
    "optional": Extra(inputs={"optional": {"type": "File?", "inputBinding": {"prefix": "--never"}}}),
    "default": Extra(
        'echo "$EXTRA_default"', {"given": {"type": "string", "default": "a default"}}, value="$(inputs.given)"
    ),
    "constant": Extra('echo "$EXTRA_constant"', {"constant": "string"}, value="$(inputs.constant)"),
    "absent": Extra('echo "$EXTRA_absent"', {"absent": "string?"}, value="$(inputs.absent)"),
    "literal": Extra("cat literal.txt", staged={"entryname": "literal.txt", "entry": "a literal text\n"}),
    "staged": Extra(
        "cat renamed.txt", {"staged": "File"}, staged={"entryname": "renamed.txt", "entry": "$(inputs.staged)"}
    ),
    "stages": Extra(staged={"entryname": "staged input", "entry": "$(inputs.i)"}),
    "slow": Extra("sleep 1"),
    # The objects of StreamFlow in which the plugin looks for expressions have a field of this name.
    ASKED: Extra('echo "$step"', variables={"step": "$(inputs.i.size)"}),
    "limit": Extra(requirement={"class": "ToolTimeLimit", "timelimit": 300}),
    "codes": Extra(fields={"successCodes": [0, 9], "temporaryFailCodes": [75]}),
    "updates": Extra(
        "sed -i s/line/row/ own.txt; LC_ALL=C sort -o own.txt own.txt; cat own.txt",
        staged={"entryname": "own.txt", "entry": "$(inputs.i)", "writable": True},
    ),
    # The step runs for large files only.
    LARGE: Extra(),
    "name": Extra(inputs={"name": "string"}),
    "j": Extra('echo "$EXTRA_j"', {"j": "int"}, value="$(inputs.j)"),
    "k": Extra('cat "$EXTRA_k"', {"k": "File"}, value="$(inputs.k.path)"),
    COMPARES: Extra(inputs={COMPARES: "File"}, value=f"$(inputs.{COMPARES}.path)"),
    ALTERNATES: Extra(inputs={ALTERNATES: {"type": "File", "streamable": True}}, value=f"$(inputs.{ALTERNATES}.path)"),
}
