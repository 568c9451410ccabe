"""Explanations about CAPIO as the node runtime, and about edges without it."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_PAGE = "capio-runtime.md"

CAPIO = {
    Code.NO_CAPIO: Explanation(
        "CAPIO is not used in this run",
        "`runtime: capio` looks for CAPIO and tries it at the start. A part of CAPIO is missing or does not work "
        "here. The embedded node runtime serves all edges. Results are the same.",
        (
            Case(
                "`runtime: capio`: the embedded node runtime is used for all: SERVER is not in ...",
                "Set `CAPIO_HOME` to the installation of CAPIO, with `bin/capio_server` and `lib/libcapio_posix.so`.",
            ),
            Case(
                "`runtime: capio`: the embedded node runtime is used for all: no C compiler ...",
                "Install `cc`, `gcc` or `clang` on the driver's node. The compiler builds the guard in front of CAPIO.",
            ),
            Case(
                "`runtime: capio`: the embedded node runtime is used for all: ...",
                "The message has the last words of `capio_server`. `/dev/shm` may be full, or `TMPDIR` too long.",
            ),
        ),
        f"{_PAGE}#what-it-needs",
    ),
    Code.CAPIO_NOT_FOR_EDGE: Explanation(
        "CAPIO does not serve this edge",
        "CAPIO does not support the rule, the programs or the names of the edge. The embedded node runtime delivers "
        "the file by its rule. Results are the same.",
        (
            Case(
                "EDGE is served by the embedded node runtime: ...",
                "Nothing to do. `streamflow-io plan` says so before the run.",
            ),
        ),
        f"{_PAGE}#what-capio-serves",
    ),
    Code.CAPIO_NOT_FOR_STEP: Explanation(
        "A program does not work with CAPIO",
        "The guard in front of CAPIO has ended the program, the program has read or written wrong bytes, or the "
        "program has failed. Nothing that was made from these bytes is used. All jobs of the step run without CAPIO. "
        "The failed attempt does not count as a retry.",
        (
            Case(
                "CAPIO is not used any more for the jobs of S, they run without it: CAPIO cannot do what its program "
                "does: ...",
                "Nothing to do. `runtime: embedded` avoids the lost attempt in the next run.",
            ),
            Case(
                "CAPIO is not used any more for the jobs of S, they run without it: a program has read ...",
                "CAPIO has delivered other bytes than the writer wrote. Nothing to do. You may report the fault to "
                "the developers of CAPIO.",
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
        "The server of CAPIO has ended or does not answer, or a program under CAPIO hangs. The jobs that used CAPIO "
        "start again without CAPIO. The ended attempts do not count as retries.",
        (
            Case(
                "CAPIO is not used any more in this run, its jobs run without it: capio_server has ended ...",
                "Too little memory is one cause: the server keeps all files until the end of the run. CAPIO 1.0.0 "
                "also crashes in some runs.",
            ),
            Case(
                "CAPIO is not used any more in this run, its jobs run without it: a job of S has used no processor ...",
                "Use `runtime: embedded` for programs that wait long for something else than their input. CAPIO cannot "
                "tell such a program from one that hangs.",
            ),
            Case(
                "CAPIO is not used any more in this run, its jobs run without it: CAPIO does not answer ...",
                "Nothing to do. In most cases a killed program has left the server waiting.",
            ),
        ),
        f"{_PAGE}#when-something-dies",
    ),
}
