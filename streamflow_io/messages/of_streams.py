"""Explanations of why `plan` and a run do not deliver a file as early as the hints ask."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_NOT_YET = "Nothing to do: this version does not support streams there."
_ONE_KIND = "Bind both steps to one of these kinds of places."
_NOTHING = "Nothing to do."
_ONE_LIST = "Use `dotproduct`, or scatter over one list."

STREAMS = {
    Code.NOT_STREAMABLE: Explanation(
        "The input is not declared to be read as a stream",
        "Bytes flow during the write only if both ends allow streams.",
        (
            Case(
                "the input X is not `streamable`",
                "Write `streamable: true` on the input if its tool reads the input once, front to back. If not, write"
                " `start: producer` without `mode: no_update`, or nothing.",
            ),
        ),
        "guide.md#2-annotate",
    ),
    Code.LISTED: Explanation(
        "StreamFlow lists the Directory before the step starts",
        "The reader starts when the Directory is complete. With CWL v1.0 StreamFlow always lists a Directory.",
        (
            Case(
                "X is listed (loadListing; with CWL v1.0 always)",
                "Write `loadListing: no_listing`, and `cwlVersion: v1.2`.",
            ),
        ),
    ),
    Code.WHOLE_FILE: Explanation(
        "Something needs the whole file before the step starts",
        "StreamFlow reads the contents, or looks for the secondary files, before the job is submitted.",
        (
            Case("X has loadContents", "Remove `loadContents` if no expression uses `contents`."),
            Case("X has secondaryFiles", "Remove `secondaryFiles` if the tool does not use these files."),
        ),
    ),
    Code.EXPRESSION: Explanation(
        "An expression needs more of the file than its name",
        "The name of a file is known early, its size and contents are not. An expression with `inputs` as a whole, or"
        " with a function of `expressionLib`, needs everything.",
        (
            Case(
                "X is used in the expression ..., which needs the whole file",
                "Use only `path`, `basename`, `nameroot`, `nameext`, `location`, `dirname` and `format` of X or of "
                "an element `X[0]`. The `length` of a list and `X == null` are allowed, too.",
            ),
            Case(
                "the format of X is an expression that needs the whole file",
                "Let the expression use other inputs, and only the name of X.",
            ),
            Case("`when` needs the whole file (...)", "Let `when` use only the name of the file."),
            Case("S is an ExpressionTool", "Nothing to do: the driver reads the inputs of an ExpressionTool."),
        ),
    ),
    Code.KNOWN_AT_THE_END: Explanation(
        "The files of the output are known only when the job has ended",
        "Early delivery needs the name of the file before the job ends: from a `glob`, or as the standard output.",
        (
            Case("X is computed by outputEval when the job has ended", "Use a `glob` without `outputEval`."),
            Case(
                "X has secondaryFiles, which are complete only when the job has ended",
                "Write the secondary files as patterns, not as expressions. For a `File[]` use the rule `on_close`.",
            ),
            Case("X has no glob", "Give the output a `glob`."),
            Case("X is no File, File[] or Directory", "Nothing to do: only files are committed."),
            Case("X is no File", "Take each file out of the record by a `valueFrom: $(self.field)`."),
            Case("X may be missing at the end", "Make the field of the record a `File`, not a `File?`."),
            Case("X is bound to another location in the StreamFlow file", "Remove the binding of the port."),
        ),
    ),
    Code.NOT_JOINED: Explanation(
        "Neither step sees the files of the other step",
        "Bytes flow on the driver's node, between hosts (SSH or an allocation), and within one queue manager. "
        "Containers of one host need a shared directory or network, pods a shared volume or network. Elsewhere a "
        "file is copied at its commit.",
        (
            Case(
                "S runs on D, T on E: a stream needs both ...",
                _ONE_KIND,
            ),
            Case(
                "S runs on D, T on E: the gate needs both ...",
                "On hosts (SSH or an allocation), use `no_update` of a File into a `streamable` input.",
            ),
            Case(
                "S runs in a container of A (docker), T in one of B (docker): they share no directory of their host; "
                "...",
                "Give both a `volume` (docker) or `bind` (singularity) with the same source, at the `workdir` of each.",
            ),
            Case(
                "S runs in a container of A (docker), T on the driver's node: they share no directory; ...",
                "Give the container the `workdir` of its host, as a volume at the same path. Without a `workdir` in "
                "the StreamFlow file, the directory is below `TMPDIR`.",
            ),
            Case(
                "S runs in a container of A (docker, on D), T in one of B (docker, on E): ...",
                "Bind both steps to one host.",
            ),
            Case(
                "S runs in a container of A (docker), T on D (ssh): ...",
                _ONE_KIND,
            ),
            Case(
                "S runs on D (TYPE), T on E (TYPE): they share no volume; ...",
                "Give both a PersistentVolumeClaim or a `hostPath` at their `workdir`, or give these "
                "[pods](containers.md#kubernetes) a network.",
            ),
            Case("S runs on D (TYPE), T on E: pods stream with pods only", "Bind both steps to pods."),
        ),
        "containers.md",
    ),
    Code.NOT_WATCHED: Explanation(
        "No node runtime can watch the jobs of the step",
        "The step runs as with plain StreamFlow.",
        (
            Case(
                "T runs on D (TYPE): only jobs of ... stream yet",
                _NOT_YET,
            ),
            Case(
                "T takes N locations of D for each job: only jobs on one location stream yet",
                "Write `locations: 1` if the tool is no MPI program.",
            ),
            Case(
                "S runs in a container of A (docker): `containers: off`",
                "Remove `containers: off` from the scheduler's config.",
            ),
            Case(
                "S has a dockerOutputDirectory, which ...",
                "Remove `dockerOutputDirectory`.",
            ),
        ),
        "containers.md",
    ),
    Code.WHOLE_LIST: Explanation(
        "The list is delivered as a whole, not element by element",
        "Elements are delivered one by one if a step scatters directly over the list, and the place of each is known "
        "at its commit.",
        (
            Case(
                "only a File, a Directory, or a File[] into a scatter, ...",
                "Nothing to do: a whole list is delivered at its commit.",
            ),
            Case(
                "a list is scattered as a whole here (S): linkMerge at T ...",
                "Scatter directly over the output, without a `linkMerge`, a subworkflow or a default between them.",
            ),
            Case(
                "a list is scattered as a whole here (S): scatters are nested",
                "Scatter directly over the output, without another scatter around.",
            ),
            Case(
                "...: T pairs them with those of another list, ...",
                "Scatter over one list: in a `dotproduct` of two, places depend on all names.",
            ),
            Case(
                "...: a flat_crossproduct made the list",
                "Use `dotproduct`, or one list, in the step before.",
            ),
            Case(
                "its elements are in commit order and S pairs them with another list",
                "Scatter over one list, or write `committed: on_termination`.",
            ),
            Case(
                "a list of records goes on as a whole (S)",
                "Put the steps that make and read the record into a subworkflow, and scatter the subworkflow.",
            ),
            Case("flat_crossproduct needs the whole list", _ONE_LIST),
            Case("nested_crossproduct needs the whole list", _ONE_LIST),
        ),
        "how-it-works.md#lists-element-by-element",
    ),
    Code.VALUE_COMPUTED: Explanation(
        "An expression uses the value between the two steps",
        "`valueFrom` needs to know the file. The reader starts when the file is complete.",
        (
            Case("valueFrom computes a new value from it (S)", "Remove `valueFrom` from that input."),
            Case(
                "its name, or whether it is there, decides something else",
                "Use a `glob` without wildcards, and an output that is not optional.",
            ),
            Case(
                "I is computed from it by valueFrom, which uses more than its name",
                "Let that `valueFrom` use only `basename`, `nameroot` and `nameext`.",
            ),
        ),
    ),
    Code.NO_BYTES: Explanation(
        "A Directory is not one sequence of bytes",
        "Only a File can be a byte stream. With `start: producer` the files of a Directory are delivered at their "
        "commits.",
        (Case("X is a Directory: only a File has bytes to stream", "Write `start: producer` without `no_update`."),),
    ),
    Code.UNKNOWN_WAY: Explanation(
        "The way of the file through the workflow is not known before the run",
        "The file is delivered when its job has ended.",
        (
            Case("it enters a loop (S)", _NOTHING),
            Case("it is not known what happens to it there (S)", _NOTHING),
        ),
    ),
    Code.SHARED_TOKEN: Explanation(
        "Two steps read the same file, and only one of them can stream it",
        "Behind a subworkflow or a `when`, StreamFlow gives all readers the same value, so all of them stream the "
        "file or none does.",
        (
            Case(
                "S hands the same file to T, which cannot stream it",
                "Make the input of T `streamable`, or give T the file by an input of its own.",
            ),
            Case("S hands the same file to T, which needs it committed", "Give T the file by an input of its own."),
            Case(
                "X is a field of the same record, and comes no earlier",
                "Let X stream, too, or take the files out of the record.",
            ),
            Case("another reader of the same file cannot read it so", "Give that reader an input of its own."),
        ),
    ),
    Code.DIRECTORY_NOT_CLOSED: Explanation(
        "A Directory is never closed",
        "The files are committed when the job has ended.",
        (
            Case(
                "a Directory is never closed: ...",
                "Use `on_n_files`, `on_file` or `on_close:N`. With `start: producer`, the files are committed one by "
                "one.",
            ),
        ),
        "hints.md",
    ),
    Code.TIME_LIMIT: Explanation(
        "Waiting would use up the time of the job",
        "The reader starts when the file is complete.",
        (
            Case(
                "S has a ToolTimeLimit, and its queue manager counts the time ...",
                "Remove the limit if the tool does not need one.",
            ),
        ),
    ),
    Code.ONE_END: Explanation(
        "Only one end of an edge is `streamable`",
        "Bytes flow only if the writer never changes written bytes, and the reader reads once, front to back.",
        (
            Case(
                "A is `streamable`, and B is not: nothing streams from A to B",
                "Write `streamable: true` on both ends if both tools allow streams. If not, ignore the message. Of a "
                "record only fields of type `File` stream, and no fields of records in the record.",
            ),
            Case(
                "N edges are `streamable` at one end only: ...",
                "Run `streamflow-io plan`, which names both ends of each.",
            ),
        ),
        "guide.md#2-annotate",
    ),
    Code.NO_WINDOW: Explanation(
        "An output has no window, although its rule asks for one",
        "Something needs the whole file. The file is written as without a window.",
        (Case("A has no window, and is kept whole: ...", "The reason says what needs the file."),),
        "intermediate-files.md#windows",
    ),
    Code.WINDOW_LOST: Explanation(
        "A job needs a file that was removed behind its readers",
        "The file has a window. The job that writes the file runs again, and keeps the file whole.",
        (
            Case(
                "Job J starts again, and keeps its files whole: ...",
                "If this happens in each run, write `permanent: true` for the output. If its reader is wrongly "
                "declared `streamable`, remove that.",
            ),
            Case(
                "F has a window, and is not there as a whole any more: ...",
                "The job could not run again, and the run fails. Write `permanent: true` for the output.",
            ),
        ),
        "intermediate-files.md#windows",
    ),
}
