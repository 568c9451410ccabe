"""Writes the licences of all that is linked into `sfio-node`.

`python -m scripts.notices FILE TARGET` writes the file for one target of Rust. A wheel holds it beside `LICENSE`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MANIFEST = Path(__file__).parents[1] / "node" / "Cargo.toml"
_NAMES = ("LICENSE*", "LICENCE*", "COPYING*", "COPYRIGHT*", "NOTICE*", "UNLICENSE*")
_RULE = "\n" + "-" * 80 + "\n"


def linked(metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the packages that are linked into the program, without those of tests and of the build.

    :param metadata: what `cargo metadata` prints
    """
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found, open_ = {root}, [root]
    while open_:
        for needed in nodes[open_.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in needed["dep_kinds"])
            is_macro = any("proc-macro" in target["kind"] for target in packages[needed["pkg"]]["targets"])
            if is_linked and not is_macro and needed["pkg"] not in found:
                found.add(needed["pkg"])
                open_.append(needed["pkg"])
    yield from sorted((packages[each] for each in found - {root}), key=lambda package: (package["name"], package["id"]))


def texts(directory: Path) -> list[str]:
    """Return the texts of the licences in a directory."""
    paths = {path for name in _NAMES for path in directory.glob(name) if path.is_file() and path.suffix != ".html"}
    return [path.read_text(errors="replace").strip() for path in sorted(paths)]


def notices(target: str) -> str:
    """Return the licences of the crates and of Rust's standard library, each text once.

    :param target: a target of Rust, such as `x86_64-unknown-linux-musl`
    :raises SystemExit: when a crate has neither a text nor the name of a licence
    """
    command = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--filter-platform",
        target,
        "--manifest-path",
        str(_MANIFEST),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    found = [
        (f"{package['name']} {package['version']}", package["license"], Path(package["manifest_path"]).parent)
        for package in linked(json.loads(said.stdout))
    ]
    rust = Path(sysroot.stdout.strip()) / "share" / "doc" / "rust"
    found.append(("Rust's standard library", "MIT OR Apache-2.0; musl, its C library for targets of musl: MIT", rust))
    holders: dict[str, list[str]] = defaultdict(list)
    lines = []
    for name, licence, directory in found:
        known = texts(directory)
        if not (licence or known):
            raise SystemExit(f"notices: {name} names no licence")
        lines.append(f"{name}: {licence or 'as below'}")
        for text in known:
            holders[text].append(name)
    head = "\n".join(["sfio-node is linked statically with these packages:", "", *lines, ""])
    return _RULE.join([head, *(f"{', '.join(names)}:\n\n{text}\n" for text, names in holders.items())])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(notices(sys.argv[2]))
