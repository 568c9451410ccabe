"""Facts that the core is told of the feature."""

from __future__ import annotations

from importlib import import_module

import pytest

from streamflow_io.features.capio.feature import FEATURE
from streamflow_io.hints.errors import HintErrors, Source
from streamflow_io.hints.yaml_files import parse_scheduler_config


def test_capio_is_a_runtime() -> None:
    assert parse_scheduler_config({"runtime": "capio"}, Source("streamflow.yml")).runtime == "capio"
    with pytest.raises(HintErrors, match="allowed: 'embedded', 'capio' or 'off'"):
        parse_scheduler_config({"runtime": "fuse"}, Source("streamflow.yml"))


def test_the_modules_are_there() -> None:
    for module in FEATURE.runtimes().values():
        assert {"choose", "forecast"} <= vars(import_module(module)).keys()
