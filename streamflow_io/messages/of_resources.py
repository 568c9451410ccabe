"""Explanations about storage bandwidth, cores, memory and disks, and about facts kept from run to run."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_WHICH = "`streamflow-io learned list` says which file is the store."

RESOURCES = {
    Code.NO_STORAGE: Explanation(
        "No storage of the StreamFlow file is where the step writes",
        "The storageBW has no effect without a storage in the scheduler's config.",
        (
            Case(
                "The storageBW of S is not applied on D: no storage of the scheduler's config holds PATH there",
                "Add an entry to `storages` with `path: PATH` or a directory above. `streamflow-io storage probe "
                "PATH` measures the bandwidth.",
            ),
            Case(
                "The storageBW of S is not applied on D: the scheduler's config has no storage NAME there",
                "Give the storage NAME no `deployment`, or the deployment of the step.",
            ),
        ),
        "storage.md",
    ),
    Code.NOT_HELD: Explanation(
        "A job is not held to its storageBW",
        "Pauses need a node runtime that sees the processes. The job runs without pauses.",
        (
            Case("S is not held to its storageBW on D: ...", "`streamflow-io doctor` says what is missing there."),
            Case(
                "it is not held to its storageBW: what its processes move cannot be seen: ...",
                "Another user owns the processes, or `/proc` is not that of the job.",
            ),
        ),
        "storage.md#limited-no-faster-than-that",
    ),
    Code.NOT_SHARED: Explanation(
        "A storage is not shared with other runs",
        "Each run uses all of the bandwidth, and together the runs may overload the storage.",
        (
            Case(
                "Storage NAME is not shared with other runs: ...",
                "`streamflow-io doctor` tries the locks. `streamflow-io storage share` makes a directory.",
            ),
            Case(
                "Storage NAME is not shared with other runs any more: ...",
                "The directory was removed, or its file system does not answer.",
            ),
        ),
        "sharing.md",
    ),
    Code.NEVER_STARTS: Explanation(
        "No location has as much as the job asks for",
        "The job asks for more cores, memory or time than any location has, and would wait forever.",
        (
            Case(
                "Job J cannot start: it has a ToolTimeLimit of ...",
                "Ask for a longer allocation, or lower the ToolTimeLimit. A failure manager does not help.",
            ),
            Case(
                "Job J cannot start: it asks for ..., because node N ... has failed",
                "Start the run again with other nodes.",
            ),
            Case(
                "Job J cannot start: no node of A can be used any more: ...",
                "Start the run again in another allocation, or write a larger `max` in `submit`.",
            ),
            Case("Job J cannot start: A has ended: ...", "The same."),
            Case(
                "No job of S can start: ...",
                "Lower `coresMin` or `ramMin` in the ResourceRequirement, or bind the step to a larger location.",
            ),
        ),
    ),
    Code.NO_SPACE: Explanation(
        "A disk has too little free space for a job",
        "A job that waits asks for more space than there was when the run began, by default 1,024 MiB each for output "
        "and temporary files. When no job runs that could make space, the run ends.",
        (
            Case(
                "Job J waits for free space on L: ...",
                "Free space, write `intermediates: remove`, or lower `outdirMin` and `tmpdirMin` in a "
                "ResourceRequirement.",
            ),
            Case(
                "Job J cannot start, and no job runs that could make space on L: ...",
                "The same.",
            ),
            Case(
                "Job J is tried again on another location. ...",
                "Remove files from the disk that is named, or set another `workdir`.",
            ),
        ),
    ),
    Code.NO_MEMORY: Explanation(
        "A job that needs no free core waits for memory",
        "Steps of a gang may share cores. Memory is never given twice.",
        (
            Case(
                "Job J needs no free core, and waits for memory on L: ...",
                "Lower `ramMin` where the value is too high.",
            ),
        ),
        "how-it-works.md#gangs-and-admission",
    ),
    Code.OVERSTAYS: Explanation(
        "The run of another user uses more than its share of a storage",
        "From now on the other run counts only with its user's share, so the storage may be overloaded.",
        (
            Case(
                "Storage NAME: run R on H (process N) of user U has kept this run from its fair share ...",
                "Ask the user that the message names. `streamflow-io plan` shows what each run holds. A run "
                "with very long jobs does nothing wrong.",
            ),
        ),
        "sharing.md#several-users",
    ),
    Code.NOT_REMOVED: Explanation(
        "Intermediate files are kept",
        "The results of the run are the same.",
        (
            Case(
                "Intermediate files on L are kept, because it does not answer: ...",
                "The location refuses `find` and `rm`, or is not reachable. Another node that sees its work directory "
                "removes the files. Without such a node, remove them by hand.",
            ),
            Case("Intermediate files are kept from now on: ...", "StreamFlow-IO has made an error: please report it."),
        ),
        "intermediate-files.md",
    ),
    Code.LITTLE_SPACE: Explanation(
        "The run may not fit on the disk",
        "The last run of this workflow held more bytes at once than are free now. The run goes on: with smaller "
        "inputs it may need less.",
        (
            Case(
                "The directories of jobs held at most X in the last run of this workflow, and Y are free at P ...",
                "Free some space: `streamflow-io clean --dry-run` shows what earlier runs have left. A deployment "
                "of type `local` with another `workdir` uses another disk.",
            ),
        ),
        "intermediate-files.md",
    ),
    Code.DISK_LIMIT: Explanation(
        "The diskLimit leaves no space",
        "All unneeded files are removed.",
        (
            Case(
                "Nothing can go on within the diskLimit of X on L: ...",
                "Raise the `diskLimit` by what is missing.",
            ),
            Case("Job J may exceed the diskLimit of X: ...", "Raise the `diskLimit`."),
        ),
        "intermediate-files.md#a-limit",
    ),
    Code.STORE_NOT_USED: Explanation(
        "The store of learned facts is not used",
        "The store cannot be read or written: another user could replace the file, the disk is full, or another "
        "version wrote it. The run goes on without the store.",
        (
            Case("Learned limits are not remembered in this run: ...", _WHICH),
            Case("Verified splits are not remembered in this run: ...", _WHICH),
            Case("Verified splits of earlier runs are not known: ...", _WHICH),
            Case("What streams without a hint is not remembered in this run: ...", _WHICH),
            Case("What earlier runs have proven to stream is not known, ...", _WHICH),
            Case("Windows are not remembered in this run: ...", _WHICH),
            Case("Sizes of outputs are not remembered in this run: ...", _WHICH),
        ),
        "storage.md",
    ),
    Code.NOT_PROVEN: Explanation(
        "No trial has proven that the tool gives the same outputs with a stream",
        "The tool reads the file. For a proof, a job runs once more with a stream, and its outputs must be the same, "
        "but for dates.",
        (
            Case(
                "the outputs differ from run to run: FILE",
                "Declare the input `streamable` if the tool reads it front to back: the tool writes something else "
                "each time.",
            ),
            Case(
                "the outputs differ with a stream: FILE",
                "Nothing to do: the tool needs more than the bytes of the file.",
            ),
            Case(
                "the outputs differ with a short stream: FILE",
                "Nothing to do: the tool works differently with a short file.",
            ),
            Case(
                "the tool fails when it runs again: ...",
                "Nothing to do: such a tool cannot be tried.",
            ),
            Case("the tool seeks in the file", "Nothing to do: the tool needs a file."),
            Case(
                "the tool has NetworkAccess, and does not run twice",
                "Declare the input `streamable` if the tool reads the input front to back.",
            ),
            Case(
                "nothing is tried on a queue manager, ...",
                "Run the workflow elsewhere with a small sample, or declare the input `streamable`.",
            ),
            Case(
                "nothing is proven ... for a job with the Directory D",
                "The content of D is not known on other hosts. Declare the input `streamable`.",
            ),
            Case(
                "it is proven with other programs than those on HOST",
                "With `rehearse: wait` a run tries the tool on HOST, too.",
            ),
        ),
        "streaming-without-hints.md",
    ),
    Code.NOT_TRIED: Explanation(
        "Nothing is known yet about the tool with a stream",
        "The tool is tried on an idle core. A run that ends soon leaves the trial to the next run.",
        (
            Case(
                "not yet tried: ...",
                "Run the workflow again, or write `rehearse: wait` into the scheduler's config.",
            ),
            Case(
                "it was tried, and nothing is known yet: ...",
                "The reason says what was missing, such as a larger file. Each run tries again.",
            ),
            Case(
                "its job reads or writes F, which has a window: ...",
                "The job cannot run once more. Run the workflow once with `intermediates: remove`.",
            ),
            Case("what earlier runs have proven cannot be read", "A warning says why the store is not used."),
        ),
        "streaming-without-hints.md",
    ),
    Code.TELEMETRY_ENDS: Explanation(
        "The telemetry of a run is not complete",
        "The file cannot be written. The run goes on without telemetry.",
        (
            Case("The telemetry of this run ends here, ...", "The reason is mostly a full disk."),
            Case("The telemetry of this run is not complete: ...", "The disk did not answer when the run ended."),
        ),
        "telemetry.md#where-it-is",
    ),
}
