"""A command that does to files what it is told: one JSON list per line in, one line out when it is done.

A child, made by `fork`, is told through its parent: `["child", NUMBER, WHAT...]`.
"""

from __future__ import annotations

import json
import os
import signal
import sys

READING = {"w": os.O_TRUNC, "a": os.O_APPEND, "r+": 0}
MODE = os.O_WRONLY | os.O_CREAT

Step = list[str | int]


class Process:
    """One process of the job: its descriptors and its children."""

    def __init__(self) -> None:
        self.descriptors: dict[int, int] = {}
        self.children: dict[int, tuple[int, int, int]] = {}

    def act(self, step: Step) -> None:
        """Does one step; a list of lists is done at a stretch."""
        if isinstance(step[0], list):
            for part in step:
                assert isinstance(part, list)
                self.act(part)
            return
        name, *arguments = step
        getattr(self, f"do_{name}")(*arguments)

    def do_open(self, slot: int, path: str, how: str) -> None:
        self.descriptors[slot] = os.open(path, MODE | READING[how])

    def do_write(self, slot: int, text: str) -> None:
        os.write(self.descriptors[slot], text.encode())

    def do_dup(self, slot: int, other: int) -> None:
        self.descriptors[other] = os.dup(self.descriptors[slot])

    def do_close(self, slot: int) -> None:
        os.close(self.descriptors.pop(slot))

    def do_make(self, path: str, text: str) -> None:
        descriptor = os.open(path, MODE | os.O_TRUNC)
        os.write(descriptor, text.encode())
        os.close(descriptor)

    def do_mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def do_rename(self, path: str, other: str) -> None:
        os.rename(path, other)

    def do_link(self, path: str, other: str) -> None:
        os.link(path, other)

    def do_remove(self, path: str) -> None:
        os.remove(path)

    def do_touch(self, path: str) -> None:
        os.utime(path, (1, 1))

    def do_exit(self, code: int) -> None:
        os._exit(code)

    def do_kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_fork(self, number: int) -> None:
        (told, tell), (answers, answer) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(tell)
            os.close(answers)
            serve(Process.of(self.descriptors), told, answer)
            os._exit(0)
        os.close(told)
        os.close(answer)
        self.children[number] = (pid, tell, answers)

    def do_child(self, number: int, *step: str | int) -> None:
        pid, tell, answers = self.children[number]
        os.write(tell, json.dumps(step).encode() + b"\n")
        if step[0] in ("exit", "kill"):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        else:
            os.read(answers, 3)

    def do_reap(self, number: int) -> None:
        pid, tell, answers = self.children.pop(number)
        os.close(tell)
        os.close(answers)
        os.waitpid(pid, 0)

    @classmethod
    def of(cls, descriptors: dict[int, int]) -> Process:
        process = cls()
        process.descriptors = dict(descriptors)
        return process


def serve(process: Process, told: int, answer: int) -> None:
    """Does what is read from ``told`` until it ends."""
    with os.fdopen(told, "rb") as steps:
        for line in steps:
            process.act(json.loads(line))
            os.write(answer, b"ok\n")


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    serve(Process(), 0, 1)
