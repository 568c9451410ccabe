"""Stand-ins for the commands of PBS, LSF and Flux, for one job, which print what the commands themselves print.

A stand-in keeps its state in a directory: `job` has the job that was asked for, and says `waits` or `runs`. A job runs
from the second look on, unless there is a file `full`. A file `comment` has the reason why a job of PBS waits. With a
file `refusal`, no job is accepted, and the text is the reason. `calls` has the words that ask and give back, one call
in a line.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

CORES = 2
_PBS = {
    "qsub": "asks\ncase $words in *' -- /bin/sleep infinity') ;; *) echo qsub: script file >&2; exit 1; esac\n"
    "accepts qsub\necho 7.server",
    "qstat": "if looks 7.server; then echo 'Job Id: 7.server'; echo \"    job_state = $letter\"\n"
    'test ! -e $state/comment || echo "    comment = $(cat $state/comment)"\n'
    'test $letter = Q || echo "    exec_host = {exec_host}"; echo "    Resource_List.walltime = 01:00:00"\n'
    "else echo qstat: Unknown Job Id $last >&2; exit 153; fi",
    "qdel": "asks\nrm $state/job",
    # The words of the launcher are: ssh -o BatchMode=yes NODE COMMAND.
    "ssh": "shift 2; {run}",
}
_LSF = {
    "bsub": "asks\ncase $words in *' sleep infinity') ;; *) echo Empty job. Job not submitted. >&2; exit 255; esac\n"
    "accepts bsub\necho 'Job <7> is submitted to default queue <normal>.'",
    "bjobs": 'if ! looks 7; then echo "Job <$last> is not found" >&2; exit 255; fi\n'
    "case $3$letter in statQ) echo PEND ;; statR) echo RUN ;; exec_hostR) echo {slots} ;; *) echo - ;; esac",
    "bkill": "asks\nrm $state/job",
    "ssh": "shift 2; {run}",
}
_FLUX = {
    "flux": "case $1 in\n"
    "batch) asks; accepts flux-batch; echo f7 ;;\n"
    "jobs) looks f7 || letter=\n"
    "    case $letter in Q) echo SCHED ;; R) echo RUN ;; *) echo INACTIVE ;; esac ;;\n"
    'proxy) test $2 = f7 || exit 1; shift 3; exec $0 "$@" ;;\n'
    "resource) echo {resources} ;;\n"
    'exec) rank=${2#--rank=}; shift 3; set -- $(echo {nodes} | cut -d" " -f$((rank + 1))) "$@"; {run_words} ;;\n'
    "cancel) asks; rm $state/job ;;\n"
    "--parent) asks; rm $state/job ;;\nesac",
}
_COMMANDS = {"pbs": _PBS, "lsf": _LSF, "flux": _FLUX}
_COMMON = r"""#!/bin/sh
state={state}
words="$(basename "$0") $*"
for last; do :; done
asks() { echo "$words" >> $state/calls; }
accepts() {
    if test -e $state/refusal; then echo "$1: $(cat $state/refusal)" >&2; exit 1; fi
    echo waits > $state/job
}
looks() {
    test "$last" = "$1" && test -e $state/job || return 1
    letter=Q
    if test "$(cat $state/job)" = runs; then letter=R; elif ! test -e $state/full; then echo runs > $state/job; fi
}
"""


def write_stand_ins(manager: str, programs: Path, state: Path, nodes: Sequence[str], run: str) -> None:
    """Write the commands of a queue manager.

    :param manager: as the schema calls it
    :param programs: the directory of the commands
    :param run: the words of a shell that run the command "$2" of a shell on the node "$1"
    """
    quoted = "'$(printf %s \"$word\" | sed \"s/'/'\\\\\\\\''/g\")'"
    quote = f'words=; node=$1; shift; for word; do words="$words {quoted}"; done; '
    resources = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": str(rank), "children": {"core": f"0-{CORES - 1}"}} for rank in range(len(nodes))],
            "nodelist": [*nodes],
            "expiration": 4e9,
        },
    }
    fields = {
        "state": shlex.quote(str(state)),
        "exec_host": "+".join(f"{node}/0*{CORES}" for node in nodes),
        "slots": ":".join(f"'{CORES}*'{node}" for node in nodes),
        "resources": shlex.quote(json.dumps(resources)),
        "nodes": " ".join(nodes),
        "run": run,
        "run_words": quote + 'set -- "$node" "$words"; ' + run,
    }
    for name, script in _COMMANDS[manager].items():
        text = _COMMON + script + "\n"
        for field, value in fields.items():
            text = text.replace(f"{{{field}}}", value)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
