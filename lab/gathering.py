"""Plain `streamflow run` that gathers all outputs of a `nested_crossproduct` once: a reference for our runs."""

from __future__ import annotations

from streamflow.main import main as streamflow

from streamflow_io._streamflow import sizes_of_nested_lists_made_once


def main(arguments: list[str]) -> int:
    with sizes_of_nested_lists_made_once():
        code: int = streamflow(arguments)
        return code
