"""Explanations of events during a run: streams and commits, the node runtime, parts of files."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_HINTS = "hints.md#sfioreadsession"

RUNS = {
    Code.NOTHING_STREAMS: Explanation(
        "Nothing is delivered early in this run",
        "The program `sfio-node`, which works beside each job, is missing or cannot be run, or the directory for "
        "temporary files has no FIFOs or belongs to others. Results are those of plain StreamFlow.",
        (
            Case(
                "Nothing streams in this run, everything is as with plain StreamFlow: ...",
                "`streamflow-io doctor` says what is missing. `SFIO_NODE` may name another build than the plugin's; "
                "`TMPDIR` should be a directory that only you can write to, or that is sticky.",
            ),
        ),
        "guide.md#troubleshooting-by-message",
    ),
    Code.NO_NODE_RUNTIME: Explanation(
        "There can be no node runtime at one place",
        "`sfio-node` is copied to each place where jobs stream. Where that fails, producers deliver at their end, "
        "and consumers get files when they are final.",
        (
            Case(
                "Nothing streams on L, all is as with plain StreamFlow: ...",
                "`streamflow-io doctor --location DEPLOYMENT` tries each place. Mostly its directory for jobs cannot "
                "be written to, is mounted `noexec`, or the machine is of another architecture.",
            ),
        ),
        "operating-on-a-cluster.md",
    ),
    Code.OUT_OF_REACH: Explanation(
        "A host does not reach the host of the producer",
        "Bytes flow between hosts by TCP, from the producer's to the consumer's. The consumer gets the file when it "
        "is complete.",
        (
            Case(
                "X reads files of Y when they are complete, not while they are written: ...",
                "Let X reach Y by TCP: firewall, routes, or the address under which Y is known.",
            ),
        ),
        "operating-on-a-cluster.md",
    ),
    Code.REWRITTEN: Explanation(
        "The writer has changed bytes that were streamed already",
        "What is streamed is compared with the file. A writer that goes back, as to fill in a header, is found, and "
        "its readers start again with the complete file. Results are right, but nothing is gained.",
        (
            Case(
                "Job B starts again when what it reads is final: ...",
                "Take `streamable`, or `mode: no_update`, off the output.",
            ),
        ),
        "how-it-works.md#byte-streams",
    ),
    Code.REPLACED: Explanation(
        "The output is another file than the one that was read",
        "The `glob` of the output also matches a temporary name, which the reader has begun with, or "
        "`cwl.output.json` names another file. Results are right, but nothing is gained.",
        (
            Case(
                "Job B starts again with what it reads in the end: job A has made OTHER of its output ...",
                "Give the output a glob that temporary names do not match, or take `streamable` off it.",
            ),
        ),
    ),
    Code.CHANGED_AFTER_COMMIT: Explanation(
        "A file is not what it was when it was committed",
        "A commit is final: others have the file already, so the run fails, and nothing that was made from it "
        "reaches its output directory.",
        (
            Case(
                "... was committed by ..., but was written again afterwards",
                "The commit rule is too early: `on_close:N`, `on_file` or `on_termination`. Or a retried job wrote "
                "something else than before.",
            ),
            Case(
                "... was committed by ..., but is not there at the end",
                "The tool removes or renames the file: write a rule for the file that it keeps, or `on_termination`.",
            ),
            Case(
                "... was committed by ... with N files, which others have, but M more are there at the end",
                "`nFiles` is too small: consumers have got fewer files than there are.",
            ),
            Case(
                "of the output ..., FILE was delivered early, but the output is OTHER at the end",
                "The glob also matches a temporary name, and it is too late to read again. Write a rule for the "
                "files that the tool keeps, or take `streamable` and rules off that output.",
            ),
        ),
        "hints.md",
    ),
    Code.WAS_A_STREAM: Explanation(
        "A command has failed that read a byte stream",
        "A stream has no size, and can be read once. A tool that opens its input twice, seeks, maps it or asks for "
        "its size may fail with an error of its own.",
        (
            Case(
                "(input I was a byte stream, read once and front to back: if the command needs a file, take "
                "`streamable` off the input)",
                "If the error is not about something else: take `streamable` off that input. `streamflow-io explain "
                "SFIO-S024` is about tools that ask for the size.",
            ),
        ),
        "tools.md",
    ),
    Code.ENDED_WITHOUT: Explanation(
        "The writer has succeeded without the file that others were reading",
        "The file was removed or renamed before the job ended.",
        (
            Case(
                "job A has ended without FILE",
                "Take `streamable` off the output, or write a rule for the file that is kept.",
            ),
        ),
    ),
    Code.NOT_AS_DECLARED: Explanation(
        "A tool does not read its input as `streamable` says",
        "A stream has no size, and can be read once, front to back. The tool opens its input twice, seeks, maps it or "
        "asks for its size. Later runs do not stream that input, with the same tool. To try it again: `streamflow-io "
        "learned forget`. `declarations: strict` in the scheduler's config lets such a job fail.",
        (
            Case(
                "A is declared `streamable`, but it fails with a stream, and not with the file: ...",
                "Take `streamable` off that input. The results are those of the file.",
            ),
            Case(
                "A is declared `streamable`, but its output `O` is another one when it reads the complete file. The "
                "results of this run are those of the stream",
                "Take `streamable` off that input, and run again: plain StreamFlow has other results. A job that ran "
                "once more on an idle core has shown that.",
            ),
            Case(
                "A is declared `streamable`, but an earlier run has found: ...",
                "The input is read as a file. Take `streamable` off it.",
            ),
        ),
        "guide.md#wrong-declarations",
    ),
    Code.ASKS_BY_PATH: Explanation(
        "The command asks for more than the bytes of its stream",
        "It calls `stat`, `access` or the like with the path of its input, as `test -s`, `cp` and `sort` do. It is "
        "held until the file is complete, and then gets the file: nothing is wrong, but nothing is gained. Said "
        "once for a step; at the end with the number of jobs.",
        (
            Case(
                "the command asks by path for more than the bytes of FILE (stat, access...), and waits for the "
                "whole file",
                "Take `streamable` off that input, or let the command read its standard input.",
            ),
        ),
        "tools.md",
    ),
    Code.RULE_UNMET: Explanation(
        "A commit rule waits for something that the tool never does",
        "The data were committed when the job had ended: right, but late.",
        (
            Case(
                "on_close:N never came, FILE was closed M times: committed only now",
                "Write as many closes as the tool makes. `streamflow-io suggest` proposes rules from an observed run.",
            ),
            Case("on_file waited for FILE to the end", "Name a file that the tool writes."),
            Case("on_n_files promised ...", "Correct `nFiles`."),
        ),
        "hints.md",
    ),
    Code.UNSAFE_WORKDIR: Explanation(
        "Another user could replace what is in a work directory",
        "A stream is a FIFO in the directory of its reader's job. Whoever may rename a directory above the FIFO could "
        "put a file there, and the reader would read that. So each directory on the way, and each link, has to belong "
        "to you or to root. A directory to which others may write has to be sticky. On the driver's machine, a group "
        "may write to directories that belong to you.",
        (
            Case(
                "Nothing streams on L, all is as with plain StreamFlow: the work directory W is not safe: ...",
                "Set `workdir` in the deployment, or in the target of a binding, to a directory of your own. Jobs of "
                "the driver's machine without a binding have their work directory in `TMPDIR`.",
            ),
        ),
        "operating-on-a-cluster.md#the-work-directory",
    ),
    Code.STREAM_REPLACED: Explanation(
        "Something else is in the place of a stream that nobody has opened",
        "The command has succeeded, and has not opened the FIFO of its input. At the end another file is there, or "
        "another directory: the command may have read bytes that the producer did not write. So the job fails.",
        (
            Case(
                "nobody has opened the stream FIFO, and something else is in its place",
                "If the command itself replaces its input, take `streamable` off that input. If not, another user may "
                "have done so: look who may write to the directories above.",
            ),
            Case(
                "D: user N has put a directory there",
                "StreamFlow has made the directory of the job for all users, and user N came before the job began. The "
                "job has read nothing. Ask that user, or choose a `workdir` that others cannot enter.",
            ),
        ),
        "operating-on-a-cluster.md#the-work-directory",
    ),
    Code.NO_GATE: Explanation(
        "System calls cannot be held here",
        "The gate, and the answer to tools that ask for the size of a stream, need seccomp user notification (Linux "
        "5.5), which some containers refuse, and of which a process can have one listener only. Commands wait until "
        "what they read is complete; standard input streams.",
        (
            Case(
                "no gate (...): ...",
                "`streamflow-io doctor` says whether it works here. In a container: let its seccomp profile allow "
                "`seccomp` itself.",
            ),
        ),
        "how-it-works.md#the-gate",
    ),
    Code.NO_INOTIFY: Explanation(
        "The kernel reports no changes of files",
        "Too many inotify instances of this user are in use, or there is no inotify. Everything is committed when "
        "its job has ended.",
        (
            Case(
                "no inotify (...): outputs are committed when the job ends",
                "Raise `fs.inotify.max_user_instances`: a job that streams takes one.",
            ),
        ),
    ),
    Code.NOT_MEASURED: Explanation(
        "A job was not measured",
        "The job has run as with plain StreamFlow. Its bytes and CPU time are missing in the report, and nothing is "
        "learned from it.",
        (
            Case(
                "Job J is not measured: ...",
                "`streamflow-io doctor --location DEPLOYMENT` tries the place where it ran.",
            ),
            Case(
                "Job J was not measured: ...",
                "`streamflow-io doctor --location DEPLOYMENT` tries the place where it ran.",
            ),
        ),
        "telemetry.md",
    ),
    Code.PARTS_WRITTEN: Explanation(
        "A split writes its files, as without its rule",
        "Parts are read from the file that is split only if the program says where it cuts, and if the readers see "
        "the file or reach it.",
        (
            Case("The rule of `sfio:ReadSession` for A does nothing: ...", "The reason says what is missing."),
            Case(
                "The files of A are written, as without its rule of `sfio:ReadSession`: ...",
                "The reason says what is missing; mostly the readers run where they do not see the file.",
            ),
            Case(
                "Step S has written the files of A, as without its rule of sfio:ReadSession: ...",
                "The program does not know SFIO_PARTS: take the hint off, or teach it.",
            ),
        ),
        "split-steps.md",
    ),
    Code.REFUTED: Explanation(
        "The declared cuts are not those of the program",
        "The rule was compared with what the program has written, and differs. It does nothing from now on: the "
        "files are used.",
        (
            Case(
                "The rule of `sfio:ReadSession` for A is refuted, and does nothing: ...",
                "Correct the rule; the first difference is there. If it was the program that has changed: "
                "`streamflow-io learned forget --step S`.",
            ),
        ),
        "hints.md#declared-cuts",
    ),
    Code.NOT_COMPARED: Explanation(
        "The declared cuts could not be compared with what the program writes",
        "Nothing is known yet, so the files are used.",
        (
            Case(
                "The rule of `sfio:ReadSession` for A could not be compared with what the program writes: ...",
                "The reason says why. `streamflow-io partition STREAMFLOW_FILE --verify` compares without a run.",
            ),
        ),
        "hints.md#declared-cuts",
    ),
    Code.NOT_READ_AHEAD: Explanation(
        "A file is not read ahead",
        "Its readers read it themselves: nothing is lost but time.",
        (
            Case(
                "F is not read ahead any more, its readers do it themselves: ...",
                "F was changed, cannot be read, or its storage does not answer for 10 s.",
            ),
            Case("F is not read ahead: ...", "The reason says why."),
            Case("Nothing is read ahead for S: ...", "The reason says why."),
        ),
        "how-it-works.md#read-sessions",
    ),
    Code.NO_PART: Explanation(
        "The value of `part` names no part",
        "Nothing is read ahead for this job, which reads by itself.",
        (
            Case(
                "Step S: `P` says no part of F: ...",
                "The value of `part` is to be `KofN`, K from 1 to N, or a whole number with `parts`.",
            ),
        ),
        _HINTS,
    ),
    Code.CHANGED_SINCE_CUT: Explanation(
        "A file has changed while its parts were read",
        "Parts are places in a file: if that changes, they are others. The run fails.",
        (
            Case(
                "its input I is a part of a file that has changed since it was cut: ...",
                "Find who writes to the file, and let it be complete before it is split.",
            ),
        ),
        _HINTS,
    ),
}
