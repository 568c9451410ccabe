"""What a process that is forked for our programs has imported: see `tests/forked.py`."""

from __future__ import annotations

import gc
from importlib import import_module
from pkgutil import walk_packages

import streamflow_io

for _name in (
    "streamflow.main",
    "streamflow.cwl.main",
    "streamflow.cwl.translator",
    "cwl_utils.parser.cwl_v1_2",
    "cwltool.main",
    *(module.name for module in walk_packages(streamflow_io.__path__, "streamflow_io.")),
):
    import_module(_name)
# What is never written to is shared by all that are forked.
gc.collect()
gc.freeze()
