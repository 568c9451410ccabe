"""The options of `streamflow-io coordination` that need CAPIO: `--script` and `--check`. Nothing is run."""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import shlex
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from streamflow_io.commands.console import say, table
from streamflow_io.commands.coordination import MoreOptions
from streamflow_io.commands.output import write_output
from streamflow_io.engine.plan import Plan
from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile
from streamflow_io.graph.capio_cl.language import write_capio_cl
from streamflow_io.hints.commit import ON_TERMINATION
from streamflow_io.hints.errors import HintErrors
from streamflow_io.wording import counted

from .language.comparison import Difference, compare
from .loading import load_capio_cl

_SCRIPT = """\
#!/bin/sh
# The workflow {name} under CAPIO, without StreamFlow. CAPIO_HOME is where CAPIO is installed.
#
#   sh SCRIPT server &                          starts CAPIO's server; it ends with SIGTERM
#   sh SCRIPT run APPLICATION COMMAND...        runs a command, in {directory}/APPLICATION
#
# Applications: {applications}
# To keep a result, before the server ends: sh SCRIPT run APPLICATION cat NAME > FILE
# Instead of a * write what tells the instance from others, as in align-0.
# Files are found at {directory}/APPLICATION/NAME, by programs that are started so. Nothing compares what they read.
# Not scripts and shells: processes that share an open file, or start others, hang under CAPIO, or mix their files up.
set -eu
: "${{CAPIO_HOME:?is not set: where CAPIO is installed}}"
export CAPIO_DIR={directory} CAPIO_WORKFLOW_NAME={name}
libraries=$CAPIO_HOME/lib/libcapio_posix.so
for needed in "$CAPIO_HOME"/lib/libsyscall_intercept.so.[0-9]; do
  [ ! -e "$needed" ] || libraries=$libraries:$needed
done
case ${{1-}} in
server)
  mkdir -p "$CAPIO_DIR"
  cd "$CAPIO_DIR"
  cat > "$CAPIO_DIR/capio-cl.json" <<'CAPIO_CL'
{document}
CAPIO_CL
  memory=/dev/shm/$CAPIO_WORKFLOW_NAME
  [ ! -e "$memory" ] || {{ echo "$0: a server for {name} runs, or was killed: $memory" >&2; exit 1; }}
  "$CAPIO_HOME/bin/capio_server" -c "$CAPIO_DIR/capio-cl.json" & server=$!
  trap 'kill $server' TERM INT HUP
  code=0; wait $server || code=$?
  while kill -0 $server 2> /dev/null; do sleep 0.1; done
  rm -f "$memory" "$memory"_* "/dev/shm/sem.$CAPIO_WORKFLOW_NAME"_*
  exit $code
  ;;
run)
  [ $# -ge 3 ] || {{ echo "$0 run APPLICATION COMMAND..." >&2; exit 2; }}
  case $2 in
{names}
  *) echo "$0: $2 is no application of the workflow" >&2; exit 2 ;;
  esac
  export CAPIO_APP_NAME
  # CAPIO knows only directories that are made with its library; the command starts in that of the file system.
  LD_PRELOAD=$libraries mkdir "$CAPIO_DIR/$2" 2> /dev/null || true
  mkdir -p "$CAPIO_DIR/$2"
  cd "$CAPIO_DIR/$2"
  shift 2
  exec env LD_PRELOAD="$libraries" "$@"
  ;;
*)
  echo "$0 server | $0 run APPLICATION COMMAND..." >&2
  exit 2
  ;;
esac
"""


def write_launcher(configuration: Configuration, directory: str) -> str:
    """A shell script that starts CAPIO's server with a configuration, and commands as its applications.

    :param directory: `CAPIO_DIR`, absolute
    """
    directories = _directories(configuration)
    document = write_capio_cl(_as_capio_serves(configuration, directories).below(directory), "1.0")
    return _SCRIPT.format(
        name=shlex.quote(configuration.name),
        directory=shlex.quote(directory),
        applications=", ".join(directories),
        names="\n".join(
            f"  {_quoted(path)}) CAPIO_APP_NAME={shlex.quote(directories[path])} ;;"
            # `case` takes the first that fits: `align-*` would fit the step `align-report`, too.
            for path in sorted(directories, key=lambda path: (path.endswith("*"), -len(path)))
        ),
        document=json.dumps(document, indent=1),
    )


def _directories(configuration: Configuration) -> dict[str, str]:
    """The application that works in each directory, below that of the run: `align`, or `align-*` of instances."""
    of_files = {file.path.split("/")[0]: app for file in configuration.files for app in file.producers}
    others = {app: app for app in configuration.mentioned if app not in of_files.values()}
    return {**of_files, **others}


def _as_capio_serves(configuration: Configuration, directories: dict[str, str]) -> Configuration:
    """The configuration in the form that CAPIO 1.0.0 serves rightly: see `docs/capio-runtime.md`.

    An application that asks for a file that does not exist waits for ever, unless it is a writer of that file. So each
    application is named as a writer of all files in its directory.
    """
    files = {file.path: _as_served(file) for file in configuration.files}
    for path, app in directories.items():
        for own in (path, posixpath.join(path, "*")):
            files.setdefault(own, CoordinatedFile(own, own == path, producers=(app,)))
    return replace(configuration, files=tuple(files[path] for path in sorted(files)))


def _as_served(file: CoordinatedFile) -> CoordinatedFile:
    never = file.committed.kind in ("on_file", "on_n_files")
    return replace(
        file,
        committed=ON_TERMINATION if never else file.committed,
        # A reader that comes before the first byte would have an end of file.
        mode="update",
        file_deps=(),
        n_files=None,
        # The server dies, always when one is read, and in some runs when it has written one.
        permanent=False,
    )


def _quoted(path: str) -> str:
    """The path as a pattern of `case`, in which only a `*` at the end is a wildcard."""
    name = path.removesuffix("*")
    return shlex.quote(name) + "*" * (name != path)


_MOST_PATHS = 5


class Check(Struct, frozen=True):
    """Contradictions between a CAPIO-CL file and a workflow."""

    file: str
    workflow: str
    findings: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not self._count("error")

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "workflow": self.workflow, "findings": [to_builtins(each) for each in self.findings]}

    def show(self, console: Console) -> None:
        if self.findings:
            columns = ("", "what", "workflow, file, consequence")
            console.print(table(None, columns, map(_row, self.findings), lines=True))
        mistakes = f"{counted(self._count('error'), 'error')}, {counted(self._count('warning'), 'warning')}"
        verdict = mistakes if self.findings else f"says what the workflow {self.workflow} and its hints say"
        text = f"{os.path.relpath(self.file)}: {verdict}"
        say(console, text, "bold")

    def _count(self, severity: str) -> int:
        return sum(finding.severity == severity for finding in self.findings)


class CapioOptions(MoreOptions):
    """The options `--script` and `--check`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--script",
            metavar="FILE",
            type=Path,
            help="write a script that runs the workflow under CAPIO",
        )
        parser.add_argument("--check", metavar="FILE", type=Path, help="compare a CAPIO-CL file with the workflow")

    def run(self, arguments: argparse.Namespace, plan: Plan) -> Check | None:
        """Write the script, or compare a file with the plan of a workflow.

        :raises HintErrors: if the file has mistakes, or the script cannot be written
        """
        if arguments.check is not None:
            return check(plan, arguments.check)
        if arguments.script is not None:
            if arguments.directory is None:
                raise HintErrors.one(
                    arguments.script, "--script", "needs --directory", "the directory for CAPIO's files"
                )
            write_output(arguments.script, write_launcher(plan.configuration, str(arguments.directory.absolute())))
        return None


def check(plan: Plan, file: Path) -> Check:
    """Compare a CAPIO-CL file with the plan of a workflow.

    :raises HintErrors: if the file has mistakes
    """
    ours = plan.configuration
    return Check(os.path.abspath(file), ours.name, compare(ours, load_capio_cl(file), plan.graph.steps))


def _row(finding: Difference) -> tuple[Text, ...]:
    colour = "red" if finding.severity == "error" else "yellow"
    what = f"{finding.kind}\n{finding.subject}{_paths(finding.paths)}"
    sides = f"workflow: {finding.workflow}\nfile: {finding.file}\n{finding.consequence}"
    return Text(finding.severity, colour), Text(what), Text(sides)


def _paths(paths: tuple[str, ...]) -> str:
    more = [f"and {len(paths) - _MOST_PATHS} more"] if len(paths) > _MOST_PATHS else []
    return "".join(f"\n  {line}" for line in (*paths[:_MOST_PATHS], *more))
