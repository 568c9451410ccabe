"""Explanations of events during a run: streams and commits, the node runtime, parts of files."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_HINTS = "hints.md#sfioreadsession"
_REASON = "The reason says what is missing."
_TRY_PLACE = "`streamflow-io doctor --location DEPLOYMENT` tries the place where the job ran."

RUNS = {
    Code.NOTHING_STREAMS: Explanation(
        "Nothing is delivered early in this run",
        "`sfio-node` is missing or does not start, or the directory for temporary files is not usable.",
        (
            Case(
                "Nothing streams in this run, ...",
                "`streamflow-io doctor` says what is missing. `SFIO_NODE` may name another build. `TMPDIR` must allow "
                "FIFOs, and be sticky or closed to other users.",
            ),
        ),
        "guide.md#troubleshooting-by-message",
    ),
    Code.NO_NODE_RUNTIME: Explanation(
        "The node runtime does not work at one place",
        "`sfio-node` cannot be copied there, or does not start. Producers there deliver at their end, and consumers "
        "get complete files.",
        (
            Case(
                "Nothing streams on L, all is as with plain StreamFlow: ...",
                "`streamflow-io doctor --location DEPLOYMENT` tries the place. Common causes are a read-only directory "
                "for jobs, directories from which no program can be run (`noexec`), and another architecture.",
            ),
        ),
        "operating-on-a-cluster.md",
    ),
    Code.OUT_OF_REACH: Explanation(
        "The consumer's host does not reach the producer's host",
        "No TCP connection is possible between the hosts, so the consumer gets the complete file.",
        (
            Case(
                "X reads files of Y when they are complete, ...",
                "Check the firewall, the routes, and the address of the producer's host.",
            ),
        ),
        "operating-on-a-cluster.md",
    ),
    Code.REWRITTEN: Explanation(
        "The writer has changed bytes that were streamed already",
        "The streamed bytes differ from the file, for example because the writer filled in a header at the end. The "
        "readers start again with the complete file. Results are right, but no time is saved.",
        (
            Case(
                "Job B starts again when its input is final: ...",
                "Remove `streamable`, or `mode: no_update`, from the output.",
            ),
        ),
        "how-it-works.md#byte-streams",
    ),
    Code.REPLACED: Explanation(
        "The output is another file than the one that was read",
        "The `glob` of the output also matches a temporary name, or `cwl.output.json` names another file. The reader "
        "starts again. Results are right, but no time is saved.",
        (
            Case(
                "Job B starts again with the final output: the output O of job A is OTHER, not ...",
                "Give the output a glob that temporary names do not match, or remove `streamable` from the output.",
            ),
        ),
    ),
    Code.CHANGED_AFTER_COMMIT: Explanation(
        "A file was changed after its commit",
        "Other jobs have the file already. The run fails, and nothing made from the file reaches the output directory.",
        (
            Case(
                "... was committed by ..., but was written again afterwards",
                "Use a later commit rule: `on_close:N`, `on_file` or `on_termination`. A repeated job that writes "
                "something else is another cause.",
            ),
            Case(
                "... was committed by ..., but is not there at the end",
                "Write a rule for the file that remains, or use `on_termination`.",
            ),
            Case(
                "... was committed by ... with N files, which other jobs have, but M more are there at the end",
                "Correct `nFiles`: consumers have got too few files.",
            ),
            Case(
                "of the output ..., FILE was delivered early, but the output is OTHER at the end",
                "The glob also matches a temporary name. Write a rule for the files that remain, or remove "
                "`streamable` and rules from that output.",
            ),
        ),
        "hints.md",
    ),
    Code.WAS_A_STREAM: Explanation(
        "A command that read a byte stream has failed",
        "A tool that opens its input twice, seeks, maps the input or asks for its size may fail with a stream.",
        (
            Case(
                "(input I was a byte stream, ...)",
                "Remove `streamable` from that input, unless the error is about something else.",
            ),
        ),
        "tools.md",
    ),
    Code.ENDED_WITHOUT: Explanation(
        "The writer has succeeded without the file that other jobs were reading",
        "The file was removed or renamed before the job ended. The jobs that were reading it fail.",
        (
            Case(
                "job A has ended without FILE: ...",
                "Remove `streamable` from the output, or write a rule for the file that remains.",
            ),
        ),
    ),
    Code.NOT_AS_DECLARED: Explanation(
        "A tool does not read its input as `streamable` says",
        "The tool opens its input twice, seeks, maps the input or asks for its size. Later runs do not stream that "
        "input, until `streamflow-io learned forget`. With `declarations: strict` such a job fails.",
        (
            Case(
                "A is declared `streamable`, but the tool fails with a stream, and not with the file: ...",
                "Remove `streamable` from that input. This run has used the file.",
            ),
            Case(
                "A is declared `streamable`, but the output `O` differs ...",
                "Remove `streamable` from that input, and run again: plain StreamFlow has other results.",
            ),
            Case(
                "A is declared `streamable`, but an earlier run has found: ...",
                "Remove `streamable` from that input. This run uses the file.",
            ),
        ),
        "guide.md#wrong-declarations",
    ),
    Code.ASKS_BY_PATH: Explanation(
        "The command asks for more than the bytes of its stream",
        "The command calls `stat` or a similar function with the path of its input, as `test -s`, `cp` and `sort` do."
        " A listing of its directory does so, too. The call waits for the complete file. If it waits longer than the"
        " command ran before, later runs do not stream that input.",
        (
            Case(
                "the command asks by path for more than the bytes of FILE ...",
                "Remove `streamable` from that input, or let the command read its standard input.",
            ),
        ),
        "tools.md",
    ),
    Code.RULE_UNMET: Explanation(
        "A commit rule waits for an event that never comes",
        "The data were committed when the job had ended.",
        (
            Case(
                "on_close:N never came, ...",
                "Write the number of closes. `streamflow-io suggest` proposes rules from an observed run.",
            ),
            Case("on_file waited for FILE to the end", "Name a file that the tool writes."),
            Case("on_n_files promised ...", "Correct `nFiles`."),
        ),
        "hints.md",
    ),
    Code.UNSAFE_WORKDIR: Explanation(
        "Another user could replace files in a work directory",
        "Another user could put a file in the place of a stream. Each directory and link on the path must belong to "
        "you or root. One that others may write to must be sticky.",
        (
            Case(
                "Nothing streams on L, ...: the work directory W is not safe: ...",
                "Set `workdir` in the deployment, or in the target of a binding, to a directory of your own. Without "
                "a binding, jobs of the driver's machine use `TMPDIR`.",
            ),
        ),
        "operating-on-a-cluster.md#the-work-directory",
    ),
    Code.STREAM_REPLACED: Explanation(
        "Another file is in the place of a stream",
        "The command has succeeded without opening its FIFO. The job fails, because the command may have read wrong "
        "bytes.",
        (
            Case(
                "no program has opened the stream FIFO, and something else is in its place",
                "If the command replaces its input, remove `streamable` from that input. If not, check the "
                "permissions of the directories above.",
            ),
            Case(
                "D: user N has put a directory there",
                "Ask that user, or choose a `workdir` that others cannot enter: StreamFlow made the directory "
                "writable for all users.",
            ),
        ),
        "operating-on-a-cluster.md#the-work-directory",
    ),
    Code.NO_GATE: Explanation(
        "System calls cannot be held here",
        "The gate needs seccomp user notification (Linux 5.5), which some containers refuse. Commands wait until "
        "their input is complete. Standard input still streams.",
        (
            Case(
                "no gate (...): ...",
                "`streamflow-io doctor` tests the gate. In a container, allow `seccomp` in the profile.",
            ),
        ),
        "how-it-works.md#the-gate",
    ),
    Code.NO_INOTIFY: Explanation(
        "The kernel reports no changes of files",
        "Outputs are committed when their job has ended.",
        (
            Case(
                "no inotify (...): ...",
                "Raise `fs.inotify.max_user_instances` and `fs.inotify.max_user_watches`: jobs that stream need both.",
            ),
        ),
    ),
    Code.NOT_MEASURED: Explanation(
        "A job was not measured",
        "The report has neither its bytes nor its CPU time, and later runs learn nothing from the job.",
        (
            Case("Job J is not measured: ...", _TRY_PLACE),
            Case("Job J was not measured: ...", _TRY_PLACE),
        ),
        "telemetry.md",
    ),
    Code.KEPT_WHOLE: Explanation(
        "A file has no window in this run",
        "The file is written as without a window, and takes its whole size on disk.",
        (
            Case(
                "F is kept whole, without a window: no holes: ...",
                "The file system cannot remove a part of a file. Choose a `workdir` on ext4, XFS, Btrfs or tmpfs.",
            ),
            Case(
                "... no room to test for holes: ...",
                "The file system is full, or your quota. A full tmpfs has used its part of memory. Free some space.",
            ),
            Case(
                "... its reader takes nothing, and may wait for another output ...",
                "The job is not paused any more until its reader has caught up.",
            ),
            Case(
                "... the job has it open for reading, ... another program has read it",
                "The tool reads its own output. Do not give this output a window.",
            ),
            Case("... it is a symbolic link", "Let the tool write the file under the name of the output."),
        ),
        "intermediate-files.md#windows",
    ),
    Code.NOT_AS_WINDOW: Explanation(
        "A file with a window was not written front to back, or was read by another program",
        "Bytes of the file were removed when its readers had them. The jobs run again, and keep the file whole.",
        (
            Case(
                "F cannot have a window, and is lost: ...",
                "Remove `window` from the rule, or write `permanent: true`.",
            ),
        ),
        "intermediate-files.md#windows",
    ),
    Code.PARTS_WRITTEN: Explanation(
        "A split writes its files, as without its rule",
        "The readers have to see or reach the split file, and the program has to say its cuts.",
        (
            Case("The rule of `sfio:ReadSession` for A does nothing: ...", _REASON),
            Case(
                "The files of A are written, ...",
                "In most cases the readers run where they do not see the file.",
            ),
            Case(
                "Step S has written the files of A, ...",
                "The program does not support `SFIO_PARTS`: add the support, or remove the hint.",
            ),
        ),
        "split-steps.md",
    ),
    Code.REFUTED: Explanation(
        "The declared cuts are not those of the program",
        "The rule has no effect any more, and jobs read the files.",
        (
            Case(
                "The rule of `sfio:ReadSession` for A is refuted, ...",
                "Correct the rule: the message has the first difference. After a change of the program, run "
                "`streamflow-io learned forget --step STEP`.",
            ),
        ),
        "declared-cuts.md",
    ),
    Code.NOT_COMPARED: Explanation(
        "The declared cuts could not be compared with the files of the program",
        "The rule is neither verified nor refuted, so jobs read the files.",
        (
            Case(
                "The rule of `sfio:ReadSession` for A could not be compared ...",
                "The reason says why. The next run compares again.",
            ),
        ),
        "declared-cuts.md",
    ),
    Code.NOT_READ_AHEAD: Explanation(
        "A file is not read ahead",
        "The jobs read the file by themselves.",
        (
            Case(
                "F is not read ahead any more, ...",
                "The file was changed or cannot be read, or its storage does not answer for 10 s.",
            ),
            Case("F is not read ahead: ...", "The message says why."),
            Case("Nothing is read ahead for S: ...", "The message says why."),
        ),
        "how-it-works.md#read-sessions",
    ),
    Code.NO_PART: Explanation(
        "The value of `part` names no part",
        "The job reads the file by itself.",
        (
            Case(
                "Step S: `P` names no part of F: ...",
                "Write `KofN`, with K from 1 to N. With `parts`, a whole number is allowed, too.",
            ),
        ),
        _HINTS,
    ),
    Code.CHANGED_SINCE_CUT: Explanation(
        "A file has changed while its parts were read",
        "The run fails, because the places of parts now hold other bytes.",
        (
            Case(
                "its input I is a part of a file that has changed ...",
                "Find the program that writes to the file: the file must be complete before the split.",
            ),
        ),
        _HINTS,
    ),
}
