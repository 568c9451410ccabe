"""The waits of deployments in the queues of queue managers, for the runs of this process."""

from __future__ import annotations

from collections.abc import Callable

# Each gets the name of a deployment, and what the deployment waits for. None: the deployment waits no more.
_listeners: dict[object, Callable[[str, str | None], None]] = {}


def listen(listener: Callable[[str, str | None], None]) -> Callable[[], None]:
    """Call a listener with the name of each deployment that begins or ends to wait, and what it waits for.

    :return: ends this, and may be called again
    """
    _listeners[key := object()] = listener

    def ignore() -> None:
        _listeners.pop(key, None)

    return ignore


def tell(deployment: str, waits: str | None) -> None:
    """Note what a deployment waits for. None: the deployment waits no more."""
    for listener in tuple(_listeners.values()):
        listener(deployment, waits)
