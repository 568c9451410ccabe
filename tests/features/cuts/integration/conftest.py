"""What integration tests of the core have."""

from tests.integration.conftest import _prepared, _schemas, bench

__all__ = ["_prepared", "_schemas", "bench"]
