"""What may stream though no hint says so, and what proofs make of the routes. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """A step with inputs that may be read as streams.

    :ivar tool: a hex digest of all that is known of its tool before it runs
    :ivar inputs: the names of these inputs
    """

    tool: str
    inputs: tuple[str, ...]
