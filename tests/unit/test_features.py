"""Requests of the core to features."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamflow_io import features
from streamflow_io.features import Feature, subclass_of


class Core:
    pass


class Extended(Core):
    pass


class Extending(Feature):
    def subclasses(self) -> Mapping[str, str]:
        return {f"{__name__}:Core": f"{__name__}:Extended"}


def test_a_feature_extends_a_class_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "features", lambda: (Feature(), Extending()))
    assert subclass_of(Core) is Extended


def test_without_a_feature_the_class_of_the_core_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "features", lambda: (Feature(),))
    assert subclass_of(Core) is Core
