"""A program that starts CAPIO, and programs under it, outside of StreamFlow. Pure."""

from __future__ import annotations

import json
import shlex

from .configuration import Configuration
from .language import write_capio_cl

_SCRIPT = """\
#!/bin/sh
# The workflow {name} under CAPIO, without StreamFlow. CAPIO_HOME is where CAPIO is installed.
#
#   sh SCRIPT server &                          starts CAPIO's server; it ends with SIGTERM
#   sh SCRIPT run APPLICATION COMMAND...        runs a command, in {directory}/APPLICATION
#
# Applications: {applications}
# Files are found at {directory}/APPLICATION/NAME, by programs that are started so. Nothing compares what they read.
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
  exec "$CAPIO_HOME/bin/capio_server" -c "$CAPIO_DIR/capio-cl.json"
  ;;
run)
  [ $# -ge 3 ] || {{ echo "$0 run APPLICATION COMMAND..." >&2; exit 2; }}
  CAPIO_APP_NAME=$2
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
    document = write_capio_cl(configuration.below(directory), "1.0")
    return _SCRIPT.format(
        name=shlex.quote(configuration.name),
        directory=shlex.quote(directory),
        applications=", ".join(configuration.mentioned),
        document=json.dumps(document, indent=1),
    )
