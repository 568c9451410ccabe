"""Outputs, rules and names for hypothesis to choose from."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from .model import Kind, Output, Rule

STRANGE = ["two words.x", "new\nline.x", "caf\u00e9 \U0001f9ec.x", "\udcff\udc80.x", ".h.x"]
NAMES = ["a.x", "b.x", "c.y", "tmp", "done", *STRANGE]
DIRECTORIES = ["d", "d/e", "\udcfe", "m"]
PATHS = [*NAMES, "d/a.x", "d/b.x", "d/c.y", "d/.h", "d/e/a.x", "\udcfe/a.x", "m/a.x", "m/e/b.x", "d/done"]

KINDS: list[Kind] = ["file", "files", "directory"]
NARROW: list[tuple[str, ...]] = [(), (), ("*.x",), ("a*", "tmp")]

rules = st.one_of(
    st.just(Rule("on_termination")),
    st.builds(Rule, st.just("on_close"), closes=st.integers(1, 3)),
    st.builds(Rule, st.just("on_n_files"), n_files=st.integers(1, 4)),
    st.builds(
        Rule,
        st.just("on_file"),
        deps=st.lists(st.sampled_from(["p0", "p1", "p2", "done", "d/done", "c.y"]), min_size=1, max_size=2).map(tuple),
    ),
)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[Output, ...]:
    def output(number: int) -> Output:
        kind: Kind = draw(st.sampled_from(KINDS))
        globs: dict[Kind, list[tuple[str, ...]]] = {
            "file": [("a.x",), ("c.y",), ("d/a.x",), ("*.x",), ("tmp",)],
            "files": [("*.x",), ("*.x", "*.y"), ("d/*",), ("*/*.x", "a.x"), ("\udcff*", "[bt]*")],
            "directory": [("d",), (".",), ("[dm]",)],
        }
        first = draw(rules)
        narrow = draw(st.sampled_from(NARROW))
        own = [Rule(first.committed, narrow, first.closes, first.deps, first.n_files)]
        if draw(st.booleans()) and narrow:
            own.append(draw(rules))
        return Output(f"p{number}", kind, draw(st.sampled_from(globs[kind])), tuple(own))

    return tuple(output(number) for number in range(draw(st.integers(1, 3))))


def entry(root: Path, output: Output) -> dict[str, object]:
    """The entry of job.json for an output."""
    return {
        "port": output.port,
        "root": str(root),
        "kind": output.kind,
        "globs": list(output.globs),
        "rules": [
            {
                "globs": list(r.globs),
                "committed": r.committed,
                "closes": r.closes,
                "file_deps": list(r.deps),
                "n_files": r.n_files,
            }
            for r in output.rules
        ],
    }
