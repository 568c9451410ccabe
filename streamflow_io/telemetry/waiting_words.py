"""What jobs wait for, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .records import WaitingCause

CAUSES: Mapping[WaitingCause, str] = {
    "storage": "bandwidth of the storage",
    "cores": "cores",
    "memory": "memory",
    "disk": "space on disk",
    "place": "a place",
    "queue": "the queue",
    "gate": "the gate",
}
