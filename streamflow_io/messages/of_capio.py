"""Explanations about CAPIO as the node runtime, and about edges without it."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_PAGE = "capio-runtime.md"

CAPIO = {
    Code.NO_CAPIO: Explanation(
        "CAPIO is not used in this run",
        "With `runtime: capio` CAPIO is looked for and tried at the start. A part of it is missing, or it does not "
        "work here. The embedded node runtime serves all edges; results are the same.",
        (
            Case(
                "`runtime: capio`: the embedded node runtime is used for all: SERVER is not in ...",
                "Set `CAPIO_HOME` to where CAPIO is installed, with `bin/capio_server` and `lib/libcapio_posix.so`.",
            ),
            Case(
                "`runtime: capio`: the embedded node runtime is used for all: no C compiler ...",
                "Install `cc`, `gcc` or `clang` on the driver's node: the guard in front of CAPIO is compiled.",
            ),
            Case(
                "`runtime: capio`: the embedded node runtime is used for all: ...",
                "As it says; the last words of `capio_server` are in it. `/dev/shm` may be full, or `TMPDIR` too long.",
            ),
        ),
        f"{_PAGE}#what-it-needs",
    ),
    Code.CAPIO_NOT_FOR_EDGE: Explanation(
        "CAPIO does not serve this edge",
        "CAPIO cannot do what the rule, the programs or the names of the edge need. The embedded node runtime delivers "
        "it as the rule asks; results are the same.",
        (
            Case(
                "EDGE is served by the embedded node runtime: ...",
                "Nothing has to be done. `streamflow-io plan` says it before the run.",
            ),
        ),
        f"{_PAGE}#what-capio-serves",
    ),
    Code.CAPIO_NOT_FOR_STEP: Explanation(
        "A program does what CAPIO cannot",
        "The guard in front of CAPIO has ended the program, or what it wrote or read is not what it should be, or it "
        "has failed and CAPIO may be why. Nothing that was made of it is used: the job starts again without CAPIO, at "
        "no cost to its retries, and so do the other jobs of its step.",
        (
            Case(
                "CAPIO is not used any more for the jobs of S, they run without it: CAPIO cannot do what its program "
                "does: ...",
                "`runtime: embedded` saves the attempt that is lost each time.",
            ),
            Case(
                "CAPIO is not used any more for the jobs of S, they run without it: a program has read ...",
                "CAPIO has given it other bytes than were written. Nothing has to be done; it is worth a report to the "
                "developers of CAPIO.",
            ),
            Case(
                "CAPIO is not used any more for the jobs of S, they run without it: ...",
                "If the job fails without CAPIO, too, it is its own failure.",
            ),
        ),
        f"{_PAGE}#how-right-results-are-kept",
    ),
    Code.CAPIO_GIVEN_UP: Explanation(
        "CAPIO is given up in this run",
        "Its server has ended or does not answer, or a program under it hangs. The jobs that used it are ended and "
        "start again without it, at no cost to their retries.",
        (
            Case(
                "CAPIO is not used any more in this run, its jobs run without it: capio_server has ended ...",
                "If there is too little memory: all files that go through CAPIO stay in its server until the end of "
                "the run. CAPIO 1.0.0 crashes in some runs.",
            ),
            Case(
                "CAPIO is not used any more in this run, its jobs run without it: a job of S has used no processor ...",
                "A program that rightly waits for something else than its input for so long cannot be told from one "
                "that hangs: `runtime: embedded`.",
            ),
            Case(
                "CAPIO is not used any more in this run, its jobs run without it: CAPIO does not answer ...",
                "Mostly a program that was killed has left the server waiting. Nothing has to be done.",
            ),
        ),
        f"{_PAGE}#when-something-dies",
    ),
}
