"""Drives `sfio-node serve` in tests: jobs are made by requests on its standard input."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.node import Event, Node, built, ended, wait_for


class ConversingNode(Node):
    """A ``serve`` whose driver must send something each minute.

    :ivar errors: where its standard error goes
    """

    def __init__(self, binary: Path, base: Path, options: Sequence[str] = (), wrapper: Sequence[str] = ()) -> None:
        self.errors = base / "errors"
        redirected = ["sh", "-c", f'exec "$@" 2> {self.errors}', "sh"]
        self._speaking = threading.Lock()
        super().__init__(
            binary,
            base,
            options if "--patience" in options else ["--patience", "60", *options],
            [*redirected, *wrapper],
        )

    def say(self, *messages: object) -> None:
        """Writes lines: bytes as they are, everything else as JSON."""
        lines = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
        self.write(b"".join(line + b"\n" for line in lines))

    def write(self, text: bytes) -> None:
        """Writes bytes."""
        assert self.server.stdin is not None
        with self._speaking:
            self.server.stdin.write(text)
            self.server.stdin.flush()

    def answer(self, name: str) -> Event:
        """Waits for the answer to the request for a job."""
        return self.answers(name, 1)[0]

    def answers(self, name: str, count: int) -> list[Event]:
        """Waits for a number of answers to requests for a job."""

        def found() -> list[Event]:
            mine = [event for event in self.printed if event.get("job") == name]
            return [event for event in mine if event["event"] in ("ready", "refused")]

        wait_for(lambda: len(found()) >= count, f"answers for {name!r}: {found()}")
        return found()

    def ask(self, name: str, spec: object = None) -> Event:
        """Asks for a job, and returns the answer."""
        self.say({"job": name, "spec": {"name": "j"} if spec is None else spec})
        return self.answer(name)

    def place(self, name: str, text: str) -> None:
        """Makes a job by a request, unless it was asked for."""
        if not [event for event in self.printed if event.get("job") == name]:
            assert self.ask(name, json.loads(text)) == {"job": name, "event": "ready"}

    def complaints(self) -> list[str]:
        """Returns what was said on the standard error."""
        return self.errors.read_text().splitlines()

    def jobs_there(self) -> list[str]:
        """Returns the names of the directories of jobs."""
        return sorted(os.listdir(self.run / "jobs"))


@contextmanager
def conversation(base: Path, *options: str, wrapper: Sequence[str] = ()) -> Iterator[ConversingNode]:
    """Runs such a ``serve``; in the end everything has to be gone: see :func:`lab.node.ended`."""
    for name in ("out", "in"):
        (base / name).mkdir(exist_ok=True)
    with ended(ConversingNode(built(), base, options, wrapper)) as running:
        yield running
