"""Telemetry records of requests."""

from __future__ import annotations

from msgspec.structs import asdict

from streamflow_io.records.records import RequestRecord

from .phases import IORequest

_MB = 10**6


def request_record(request: IORequest, now: float) -> RequestRecord:
    """Return the record of a finished request."""
    facts = {name: value for name, value in asdict(request).items() if name != "is_estimate"}
    facts |= {"limit": None if request.limit is None else request.limit / _MB}
    return RequestRecord(time=now, estimate=request.is_estimate, **facts)
