"""Explanations about storage bandwidth, cores, memory and disks, and about facts kept from run to run."""

from __future__ import annotations

from .codes import Code
from .explanation import Case, Explanation

_WHICH = "`streamflow-io learned list` says which file it is."

RESOURCES = {
    Code.NO_STORAGE: Explanation(
        "No storage of the StreamFlow file is where the step writes",
        "A storageBW counts against a storage of the scheduler's config: the one that the hint names, or the one "
        "whose `path` is nearest above the output directory of the job. Without one the storageBW does nothing.",
        (
            Case(
                "The storageBW of S is not applied on D: no storage of the scheduler's config holds PATH there",
                "Add an entry to `storages` with `path: PATH` or a directory above it, and with its bandwidth: "
                "`streamflow-io storage probe PATH` measures it.",
            ),
            Case(
                "The storageBW of S is not applied on D: the scheduler's config has no storage NAME there",
                "Give the storage NAME no `deployment`, or that of the step.",
            ),
        ),
        "storage.md",
    ),
    Code.NOT_HELD: Explanation(
        "A job is not held to its storageBW",
        "`limited`, `required` and `streamBW` pause a job that moves too much. That needs a node runtime, which "
        "sees what the processes of the job move. Results are the same.",
        (
            Case("S is not held to its storageBW on D: ...", "`streamflow-io doctor` says what is missing there."),
            Case(
                "it is not held to its storageBW: what its processes move cannot be seen: ...",
                "Another user owns its processes, or `/proc` is not that of the job.",
            ),
        ),
        "storage.md#limited-no-faster-than-that",
    ),
    Code.NOT_SHARED: Explanation(
        "A storage is not shared with other runs",
        "Runs that use one storage share its bandwidth by files and locks in a directory. Where these do not work, "
        "each run takes all of it: together they may admit more than there is.",
        (
            Case(
                "Storage NAME is not shared with other runs: ...",
                "`streamflow-io doctor` tries the locks; `streamflow-io storage share` makes a directory.",
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
        "A job that asks for more cores or memory than any location has would wait for ever.",
        (
            Case(
                "No job of S can start: ...",
                "Lower `coresMin` or `ramMin` in its ResourceRequirement, or bind it to a larger place.",
            ),
        ),
    ),
    Code.NO_SPACE: Explanation(
        "A job waits for free space on a disk",
        "StreamFlow starts a job only where the disk has all that it asks for: 1,024 MiB each for output and "
        "temporary files, if its tool says nothing. It looks at the disk once, when the run begins.",
        (
            Case(
                "Job J waits for free space on L: ...",
                "Free space and run it again, or give the tool a ResourceRequirement with a smaller `outdirMin` and "
                "`tmpdirMin`.",
            ),
        ),
    ),
    Code.NO_MEMORY: Explanation(
        "A job that needs no free core waits for memory",
        "Steps of a gang run at the same time, beyond the cores; memory is never given twice.",
        (Case("Job J needs no free core, and waits for memory on L: ...", "Lower `ramMin` where it is too high."),),
        "how-it-works.md#gangs-and-admission",
    ),
    Code.OVERSTAYS: Explanation(
        "Another user's run keeps others from a shared storage",
        "Each user of a shared storage has a fair share of its bandwidth. A run that keeps this one from its share for "
        "longer than its bursts take counts only with the share of its user from then on. Together they may admit more "
        "than there is. Results are the same.",
        (
            Case(
                "Storage NAME: run R on H (process N) of user U has kept this run from its fair share ...",
                "Ask the user whether the run is as it should be; `streamflow-io storage status DIR` shows what it "
                "holds and waits for. A run with very long jobs does nothing wrong.",
            ),
        ),
        "sharing.md#several-users",
    ),
    Code.STORE_NOT_USED: Explanation(
        "What was learned is not known, or not kept",
        "The store of what runs have learned cannot be used: another user could replace it, its disk is full, or it "
        "was written by another version. The run goes on without. `learned` in the scheduler's config names another "
        "file.",
        (
            Case("Learned limits are not remembered in this run: ...", _WHICH),
            Case("Verified splits are not remembered in this run: ...", _WHICH),
            Case("Verified splits of earlier runs are not known: ...", _WHICH),
            Case("What streams without a hint is not remembered in this run: ...", _WHICH),
            Case("What earlier runs have proven to stream is not known, and nothing is learned now: ...", _WHICH),
            Case("Windows are not remembered in this run: ...", _WHICH),
        ),
        "storage.md",
    ),
    Code.NOT_PROVEN: Explanation(
        "Nothing has proven that the tool does the same with a stream",
        "With `streaming: auto` only what is proven streams: a job runs once more, with the input as a stream, and its "
        "outputs have to be the same. They may differ in the time of day, in text and in what bgzip makes of text.",
        (
            Case(
                "its outputs differ from run to run: FILE",
                "The tool writes something else each time, as a random number, a duration or a process number; or a "
                "date into a file that gzip compresses as a whole. If it reads the input front to back, declare the "
                "input `streamable`.",
            ),
            Case("its outputs differ when it reads a stream: FILE", "Nothing to do: it asks for more than bytes."),
            Case(
                "its outputs differ when it reads a short stream: FILE",
                "Nothing to do: the tool does something else where its file is short.",
            ),
            Case("it does not run twice: ...", "A tool that fails when it runs again cannot be rehearsed."),
            Case("it seeks in it", "Nothing to do: the tool needs a file."),
            Case(
                "it has NetworkAccess, and does not run twice",
                "Declare the input `streamable`, if the tool reads it front to back.",
            ),
        ),
        "streaming-without-hints.md",
    ),
    Code.NOT_TRIED: Explanation(
        "It is not known yet whether the tool does the same with a stream",
        "That is found out beside a run, on an idle core. Runs that end soon may leave it to the next one.",
        (
            Case(
                "not yet tried: its job runs once more on an idle core when it has succeeded",
                "Run the workflow again, or write `rehearse: wait` into the scheduler's config.",
            ),
            Case("what earlier runs have proven cannot be read", "A warning says why the store is not used."),
        ),
        "streaming-without-hints.md",
    ),
    Code.TELEMETRY_ENDS: Explanation(
        "The telemetry of a run is not complete",
        "A run never waits for its telemetry. Where that cannot be written, the run goes on without.",
        (
            Case("The telemetry of this run ends here, the run goes on: ...", "Mostly the disk is full."),
            Case("The telemetry of this run is not complete: ...", "Its disk did not answer when the run ended."),
        ),
        "telemetry.md#where-it-is",
    ),
}
