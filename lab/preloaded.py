"""The modules that are imported before our programs are forked: see `lab/forked.py`."""

from __future__ import annotations

import gc
import json
import logging
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import Final

from pydantic import BaseModel, TypeAdapter
from streamflow.config import ext_schemas, schema, validator
from streamflow.ext import utils
from streamflow.ext.plugin import extension_points

import streamflow_io
from lab import javascript, json_documents
from streamflow_io.runtime import wire

_TOOL: Final = {"class": "CommandLineTool", "baseCommand": "true", "inputs": {}, "outputs": {"out": "stdout"}}
_STEP: Final = {"run": _TOOL, "in": {}, "out": ["out"]}
_OUTPUTS: Final = {"out": {"type": "File", "outputSource": "step/out"}}
_WORKFLOW: Final = {
    "cwlVersion": "v1.2", "class": "Workflow", "inputs": {}, "steps": {"step": _STEP}, "outputs": _OUTPUTS
}  # fmt: skip


def _build_models() -> None:
    """Build each model of pydantic whose class leaves that to its first use, and what reads messages of nodes."""
    kinds = [BaseModel]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.__module__.startswith("streamflow_io."):
            kind.model_rebuild()
    for module in [module for name, module in sys.modules.items() if name.startswith("streamflow_io.")]:
        for adapter in vars(module).values():
            if isinstance(adapter, TypeAdapter):
                adapter.rebuild()
    wire._events()
    wire._said()


def _make_schema_once() -> None:
    """Make StreamFlow's schema of its files with our plugin, which each run loads, once for all of them."""
    made: dict[tuple[object, ...], schema.SfSchema] = {}

    def make() -> schema.SfSchema:
        key = (*ext_schemas, *((name, kind) for point in extension_points.values() for name, kind in point.items()))
        if key not in made:
            made[key] = schema.SfSchema()
        return made[key]

    validator.SfSchema = make
    tables = [*extension_points.values()]
    before, schemas = [dict(table) for table in tables], [*ext_schemas]
    logging.disable(logging.INFO)
    utils.load_extensions()
    validator.SfValidator()
    logging.disable(logging.NOTSET)
    ext_schemas[:] = schemas
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def _use() -> None:
    """Use once what every run uses first: regular expressions are compiled then, functions optimized."""
    from cwl_utils.parser import load_document_by_uri
    from cwl_utils.parser.utils import static_checker

    _build_models()
    with TemporaryDirectory() as place:
        (cwl := Path(place, "main.cwl")).write_text(json.dumps(_WORKFLOW))
        (file := Path(place, "streamflow.yml")).write_text(
            json.dumps({"version": "v1.0", "workflows": {"main": {"type": "cwl", "config": {"file": cwl.name}}}})
        )
        validator.SfValidator().validate_file(str(file))
        static_checker(load_document_by_uri(str(cwl)))


for _name in (
    "streamflow.main",
    "streamflow.cwl.main",
    "streamflow.cwl.translator",
    "cwl_utils.parser.cwl_v1_2",
    "cwltool.main",
    # What these import when they run.
    "filelock",
    "rdflib.plugins.serializers.turtle",
    "rdflib.plugins.stores.memory",
    *(module.name for module in walk_packages(streamflow_io.__path__, "streamflow_io.")),
):
    import_module(_name)
# What is installed stays as it is, too.
utils.entry_points = cache(utils.entry_points)
utils.entry_points(group=utils.PLUGIN_ENTRY_POINT)
_make_schema_once()
json_documents.prepare()
_use()
javascript.prepare()
# What is never written to is shared by all that are forked. They end before there is much garbage.
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 50, 100)
