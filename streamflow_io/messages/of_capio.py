"""Explanations about CAPIO as the node runtime, and about edges without it."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_PAGE = "capio-runtime.md"

CAPIO = {
    Code.NO_CAPIO: Explanation(
        "CAPIO is not used in this run",
        "A part of CAPIO is missing. The embedded node runtime serves all edges.",
        (
            Case(
                "`runtime: capio`: the embedded node runtime is used for all: CAPIO_HOME is not set ...",
                "Set `CAPIO_HOME`, with `bin/capio_server` and `lib/libcapio_posix.so`.",
            ),
        ),
        f"{_PAGE}#what-it-needs",
    ),
    Code.CAPIO_NOT_FOR_EDGE: Explanation(
        "CAPIO does not serve this edge",
        "CAPIO does not support its rule, programs or names. The embedded node runtime delivers the file.",
        (
            Case(
                "EDGE is served by the embedded node runtime: ...",
                "Nothing to do: `streamflow-io plan` says so, too.",
            ),
        ),
        f"{_PAGE}#what-capio-serves",
    ),
    Code.CAPIO_NOT_FOR_STEP: Explanation(
        "A program does not work with CAPIO",
        "The guard has ended the program, bytes were wrong, or the program has failed. Nothing made from these bytes "
        "is used. The jobs of the step run without CAPIO. The failed attempt is no retry.",
        (
            Case(
                "CAPIO is not used any more for the jobs of S, ...: CAPIO cannot do what its program does: ...",
                "Nothing to do. `runtime: embedded` avoids the lost attempt in the next run.",
            ),
            Case(
                "CAPIO is not used any more for the jobs of S, ...: a program has read ...",
                "Nothing to do: CAPIO has delivered wrong bytes.",
            ),
            Case(
                "CAPIO is not used any more for the jobs of S, they run without it: ...",
                "If the job also fails without CAPIO, look for the fault in the job.",
            ),
        ),
        f"{_PAGE}#how-right-results-are-kept",
    ),
    Code.CAPIO_GIVEN_UP: Explanation(
        "CAPIO is given up in this run",
        "The server does not start, has ended or does not answer, or a program under CAPIO hangs. The jobs start again "
        "without CAPIO. The ended attempts are no retries.",
        (
            Case(
                "CAPIO is not used any more in this run, ...: no C compiler ...",
                "Install `cc`, `gcc` or `clang` on the driver's node.",
            ),
            Case(
                "CAPIO is not used any more in this run, ...: PATH does not start in 15 s: ...",
                "The message has the last words of `capio_server`. `/dev/shm` may be full, or `TMPDIR` too long.",
            ),
            Case(
                "CAPIO is not used any more in this run, ...: capio_server has ended ...",
                "Too little memory is one cause, because the server keeps all files. CAPIO 1.0.0 also crashes in some "
                "runs.",
            ),
            Case(
                "CAPIO is not used any more in this run, ...: a job of S has used no processor ...",
                "Use `runtime: embedded` for programs that wait long for something else than their input.",
            ),
            Case(
                "CAPIO is not used any more in this run, ...: CAPIO does not answer ...",
                "Nothing to do: in most cases a killed program has left the server waiting.",
            ),
        ),
        f"{_PAGE}#when-something-dies",
    ),
}
