"""The JSON that CAPIO read before CAPIO-CL 1.0, as CAPIO-CL 1.0. Pure.

Sources: A. R. Martinelli et al., CAPIO: a middleware for transparent I/O streaming in data-intensive workflows, HiPC
2023, Fig. 3; the configuration parser, the examples and the README of CAPIO of 2023; the first description of the
language as CLIO. They differ from each other in details; all their forms are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

_MODES = {"append": "no_update", "noupdate": "no_update"}


def is_of_the_paper(document: dict[str, JsonValue]) -> bool:
    """Whether a document has a form that CAPIO-CL 1.0 does not know any more."""
    if "version" in document:
        return False
    return "home_node_policy" in document or any(_is_old_application(app) for app in _objects(document, "IO_Graph"))


def from_paper(document: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Rewrite a document of the paper.

    A rule without `mode` becomes `update`: so CAPIO meant it then. `batch_size`, which has no successor, is left out.

    :return: the same as CAPIO-CL 1.0, as far as it is right; what is wrong with it is left as it is
    """
    new = dict(document)
    if "home_node_policy" in new:
        new.setdefault("home_node_policies", new.pop("home_node_policy"))
    if isinstance(graph := document.get("IO_Graph"), list):
        new["IO_Graph"] = [_application(app) if isinstance(app, dict) else app for app in graph]
    return new


def _objects(owner: dict[str, JsonValue], key: str) -> Iterator[dict[str, JsonValue]]:
    values = owner.get(key)
    for value in values if isinstance(values, list) else ():
        if isinstance(value, dict):
            yield value


def _is_old_application(app: dict[str, JsonValue]) -> bool:
    streams = [app.get(key) for key in ("input_stream", "output_stream")]
    groups = any(isinstance(entry, dict) for stream in streams if isinstance(stream, list) for entry in stream)
    return None in streams or groups or any(_is_old_item(item) for item in _objects(app, "streaming"))


def _is_old_item(item: dict[str, JsonValue]) -> bool:
    committed = item.get("committed")
    return (
        isinstance(item.get("name"), str)
        or isinstance(item.get("dirname"), str)
        or item.get("mode") in list(_MODES)
        or "files_deps" in item
        or "batch_size" in item
        or (isinstance(committed, str) and committed.startswith(("n_files:", "on_file:")))
    )


def _application(app: dict[str, JsonValue]) -> dict[str, JsonValue]:
    new = dict(app)
    for key in ("input_stream", "output_stream"):
        stream = app.get(key, [])
        new[key] = list(_without_groups(stream)) if isinstance(stream, list) else stream
    if isinstance(items := app.get("streaming"), list):
        new["streaming"] = [_item(item) if isinstance(item, dict) else item for item in items]
    return new


def _without_groups(stream: list[JsonValue]) -> Iterator[JsonValue]:
    """A group could be written out where it was used."""
    for entry in stream:
        if isinstance(entry, dict) and isinstance(files := entry.get("files"), list):
            yield from files
        else:
            yield entry


def _item(item: dict[str, JsonValue]) -> dict[str, JsonValue]:
    new = {key: value for key, value in item.items() if key != "batch_size"}
    for key in ("name", "dirname"):
        if isinstance(name := new.get(key), str):
            new[key] = [name]
    mode = new.get("mode", "update")
    new["mode"] = _MODES.get(mode, mode) if isinstance(mode, str) else mode
    if "files_deps" in new:
        new.setdefault("file_deps", new.pop("files_deps"))
    kind, colon, value = (
        committed.partition(":") if isinstance(committed := new.get("committed"), str) else ("", "", "")
    )
    if kind == "n_files" and value.isdecimal():
        new |= {"committed": "on_n_files", "n_files": int(value)}
    elif kind == "on_file" and colon:
        new |= {"committed": "on_file", "file_deps": [value]}
    # Directories had no `dirname`: they were told by their number of files.
    if "name" in new and "dirname" not in new and "n_files" in new:
        new["dirname"] = new.pop("name")
        if new.get("committed") in (None, "on_termination"):
            new["committed"] = "on_n_files"
    return new
