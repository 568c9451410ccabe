"""Explanations of why `plan` and a run do not deliver a file as early as the hints ask."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_AS_IT_SAYS = "As it says."
_NOTHING = "Nothing to do: not in this version."

STREAMS = {
    Code.NOT_STREAMABLE: Explanation(
        "The input is not declared to be read as a stream",
        "Bytes flow while they are written only if both ends allow it. A stream can be read once, front to back: "
        "only you know whether the tool does that. Until you say so, the file is delivered by its commit rule.",
        (
            Case(
                "the input X is not `streamable`",
                "`streamable: true` on X, if its tool reads the input once, front to back. Else let the file be "
                "delivered at its commit, or write `start: producer` without `mode: no_update`.",
            ),
        ),
        "guide.md#2-annotate",
    ),
    Code.LISTED: Explanation(
        "StreamFlow lists the Directory before the step starts",
        "The listing of a Directory is known when the Directory is complete. With CWL v1.0 StreamFlow always lists it.",
        (
            Case(
                "X is listed (loadListing; with CWL v1.0 always)",
                "`loadListing: no_listing`, and `cwlVersion: v1.2`.",
            ),
        ),
    ),
    Code.WHOLE_FILE: Explanation(
        "Something needs the whole file before the step starts",
        "Contents and secondary files are read, or looked for, by StreamFlow before the job is submitted.",
        (
            Case("X has loadContents", "Take `loadContents` off, if `contents` is not used."),
            Case("X has secondaryFiles", "Take `secondaryFiles` off, if they are not used."),
        ),
    ),
    Code.EXPRESSION: Explanation(
        "An expression looks at more of the file than its name",
        "Of a file that is still written its name is known, but neither its size nor its contents. An expression "
        "that uses `inputs` as a whole counts as one that looks at everything, and so does a function of "
        "`expressionLib`.",
        (
            Case(
                "X is used in the expression ..., which needs the whole file",
                "Use only `path`, `basename`, `nameroot`, `nameext`, `location`, `dirname`, `format` of X, or of an "
                "element `X[0]`, the `length` of a list, and `X == null`.",
            ),
            Case(
                "the format of X is an expression that needs the whole file",
                "Let it use inputs, and of the file itself only the name.",
            ),
            Case("`when` needs the whole file (...)", "Let `when` use only the name of the file."),
            Case("S is an ExpressionTool", "Nothing to do: it reads its inputs in the driver."),
        ),
    ),
    Code.KNOWN_AT_THE_END: Explanation(
        "What the output is, is known only when the job has ended",
        "A file can be delivered early if it is known, before the job ends, which one it is: by a `glob`, or as the "
        "standard output.",
        (
            Case("X is computed by outputEval when the job has ended", "A `glob` alone."),
            Case(
                "X has secondaryFiles, which are complete only when the job has ended",
                "Patterns, no expressions; for a `File[]` the rule `on_close`.",
            ),
            Case("X has no glob", "Give it a `glob`."),
            Case("X is no File, File[] or Directory", "Nothing to do: only files are committed."),
            Case("X is no File", "Take the files of the record apart, by a `valueFrom: $(self.field)` for each."),
            Case("X may be missing at the end", "Make the field of the record a `File`, and no `File?`."),
            Case("X is bound to another location in the StreamFlow file", "Drop the binding of the port."),
        ),
    ),
    Code.NOT_JOINED: Explanation(
        "The two steps run where neither sees the files of the other",
        "Bytes flow on the driver's node, between SSH hosts, within one queue manager, between containers of one "
        "host that share a directory or a network, and between pods that share a volume or a network. Between other "
        "places a file goes when it is committed, as with plain StreamFlow.",
        (
            Case(
                "S runs on D, T on E: a stream needs both on the driver's node, both on SSH hosts, or both on one "
                "queue manager",
                "Bind both steps to one of these.",
            ),
            Case(
                "S runs on D, T on E: the gate needs both on the driver's node, or both on one queue manager",
                "On SSH hosts: `no_update` of a File, into a `streamable` input.",
            ),
            Case(
                "S runs on D or E: to stream, bind it to one kind of deployment, or to one queue manager",
                _AS_IT_SAYS,
            ),
            Case(
                "S runs in a container of A or B: to stream, bind it to one kind of deployment, or to containers of "
                "one host",
                _AS_IT_SAYS,
            ),
            Case(
                "S runs in a container of A (docker), T in one of B (docker): they share no directory of their "
                "host; give both a volume at their workdir",
                "A `volume` (docker) or `bind` (singularity) with the same source, at the `workdir` of each. What "
                "StreamFlow deploys for a DockerRequirement has one.",
            ),
            Case(
                "S runs in a container of A (docker), T on the driver's node: they share no directory; give the "
                "container the workdir of its host, as a volume at its own",
                "As it says; that of the driver's node is below `TMPDIR` if it is not in the StreamFlow file.",
            ),
            Case(
                "S runs in a container of A (docker, on D), T in one of B (docker, on E): streams between "
                "containers need one host",
                "Bind both steps to one host.",
            ),
            Case(
                "S runs in a container of A (docker), T on D (ssh): a container streams with others of its host, "
                "and with steps on that host",
                "Bind both steps to one of these.",
            ),
            Case(
                "S runs on D (TYPE), T on E (TYPE): they share no volume; give both a PersistentVolumeClaim, or a "
                "hostPath, at their workdir",
                "As it says, or let these [pods](containers.md#kubernetes) have a network.",
            ),
            Case("S runs on D (TYPE), T on E: pods stream with pods only", "Bind both steps to pods."),
        ),
        "containers.md",
    ),
    Code.NOT_WATCHED: Explanation(
        "No node runtime can watch the jobs of the step",
        "Early delivery needs `sfio-node` beside the job. Where it is not started, all is as with plain StreamFlow.",
        (
            Case(
                "T runs on D (TYPE): only jobs of the driver's node, SSH hosts, queue managers, pods, and "
                "containers on the first two stream yet",
                _NOTHING,
            ),
            Case(
                "T takes N locations of D for each job: only jobs on one location stream yet",
                "`locations: 1`, if it is no MPI program.",
            ),
            Case(
                "S runs in a container of A (docker): `containers: off`",
                "Take `containers: off` out of the scheduler's config.",
            ),
            Case(
                "S has a dockerOutputDirectory, which a job shares with its next attempt",
                "Take `dockerOutputDirectory` off: a job that is tried again would find there what has failed before.",
            ),
        ),
        "containers.md",
    ),
    Code.WHOLE_LIST: Explanation(
        "The list goes on as a whole, not element by element",
        "Elements go on one by one only where a step scatters directly over the list, and where the place of each "
        "element is known when it is committed.",
        (
            Case(
                "only a File, a Directory, or a File[] into a scatter, can be had before its commit; ...",
                "Nothing to do: a whole list is delivered at commit.",
            ),
            Case(
                "a list is scattered as a whole here (S): linkMerge at T lies between the list and the scatter",
                "Scatter directly over the output, not behind a `linkMerge`, a subworkflow or a default.",
            ),
            Case(
                "a list is scattered as a whole here (S): scatters are nested",
                "Scatter directly over the output, not behind another scatter.",
            ),
            Case(
                "...: T pairs them with those of another list, and their places are known at the end",
                "Scatter over one list: in a `dotproduct` with another, the place of a file depends on the names of "
                "all.",
            ),
            Case("...: a flat_crossproduct made the list", "`dotproduct`, or one list, in the step before."),
            Case(
                "its elements are in commit order and S pairs them with another list",
                "Behind another scatter: scatter over one list, or `committed: on_termination`.",
            ),
            Case(
                "a list of records goes on as a whole (S)",
                "Put the steps that make and read the record into a subworkflow, and scatter that.",
            ),
            Case("flat_crossproduct needs the whole list", "`dotproduct`, or one list."),
            Case("nested_crossproduct needs the whole list", "`dotproduct`, or one list."),
        ),
        "how-it-works.md#lists-element-by-element",
    ),
    Code.VALUE_COMPUTED: Explanation(
        "Something looks at the value on its way",
        "`valueFrom` makes another value of it, and needs to know what the file is.",
        (
            Case("valueFrom computes a new value from it (S)", "Take `valueFrom` off that input."),
            Case(
                "its name, or whether it is there, decides something else",
                "A `glob` that is no pattern, or an output that is not optional.",
            ),
            Case(
                "I is computed from it by valueFrom, which uses more than its name",
                "Let that `valueFrom` use only `basename`, `nameroot`, `nameext`: a name comes with its file, "
                "before the commit.",
            ),
        ),
    ),
    Code.NO_BYTES: Explanation(
        "A Directory is not one sequence of bytes",
        "Its files go on as they are committed, with `start: producer`.",
        (Case("X is a Directory: only a File has bytes to stream", _AS_IT_SAYS),),
    ),
    Code.UNKNOWN_WAY: Explanation(
        "The way of the file through the workflow is not known before the run",
        "How often a loop runs is known at its end, and some steps of StreamFlow are not known to us. The file is "
        "delivered when its job has ended, as with plain StreamFlow.",
        (
            Case("it enters a loop (S)", "Nothing to do."),
            Case("it is not known what happens to it there (S)", "Nothing to do."),
        ),
    ),
    Code.SHARED_TOKEN: Explanation(
        "Two steps get the same token, and only one of them can stream it",
        "Behind a subworkflow or a `when`, StreamFlow hands on one token for all readers.",
        (
            Case(
                "S hands the same file to T, which cannot stream it",
                "Make T `streamable`, or give it the file by an input of its own.",
            ),
            Case("S hands the same file to T, which needs it committed", "Give T the file by an input of its own."),
            Case(
                "X is a field of the same record, and comes no earlier",
                "Let X stream, too, or take the files of the record apart.",
            ),
            Case("another reader of the same file cannot read it so", "Give that reader an input of its own."),
        ),
    ),
    Code.DIRECTORY_NOT_CLOSED: Explanation(
        "Nobody closes a Directory",
        "A file is closed by its writer, a Directory is not: nothing says when the last file of it is there.",
        (
            Case(
                "a Directory is never closed: use on_n_files, on_file or on_close:N; its files are committed at "
                "termination",
                "As it says, or `start: producer`: its files are committed one by one.",
            ),
        ),
        "hints.md",
    ),
    Code.TIME_LIMIT: Explanation(
        "Waiting would use up the time of the job",
        "A job of a queue manager that waits for another one in its node uses up its ToolTimeLimit.",
        (
            Case(
                "S has a ToolTimeLimit, and its queue manager counts the time in which it would wait",
                "Remove the limit, if it is not needed.",
            ),
        ),
    ),
    Code.ONE_END: Explanation(
        "Only one end of an edge is `streamable`",
        "Bytes flow if the tool that writes never changes what it has written, and the tool that reads does so "
        "once, front to back. Both have to be said.",
        (
            Case(
                "A is `streamable`, and B is not: nothing streams from A to B",
                "`streamable: true` on both ends, if it is true of both tools; else ignore it.",
            ),
        ),
        "guide.md#2-annotate",
    ),
}
