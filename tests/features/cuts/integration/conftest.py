"""The fixtures of the core's integration tests."""

from tests.integration.conftest import _prepared, _schemas, bench

__all__ = ["_prepared", "_schemas", "bench"]
