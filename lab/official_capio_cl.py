"""CAPIO-CL's own parser, `py-capio-cl`, whichever of its two interfaces is installed.

    python -m lab.official_capio_cl [VERSION...]

runs `tests/unit/test_capio_cl.py` with each of these versions, by default one of each interface. pip gets them; they
are not installed.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import py_capio_cl
from pydantic import JsonValue

from streamflow_io.graph.capio_cl.language import Version

_ROOT = Path(__file__).parent.parent
_TESTS = "tests/unit/test_capio_cl.py"
_VERSIONS = ("1.4.1", "1.5.1", "2.0.2")
# Without its monitors, which listen to the network and take a quarter of a second to end; 1.0 always has them.
_QUIET = "[monitor]\nfilesystem.enabled = false\nmcast.enabled = false\n"
# 2.x reads the document by this file. It takes `on_close:N`, N > 1, only with a monitor that counts.
_BY_FILE = """\
[capiocl]
config_path = {document}
[capiocl.monitor]
mcast.enabled = false
filesystem.enabled = true
filesystem.metadata_dir = {directory}
"""


def parse(document: dict[str, JsonValue], version: Version, directory: Path) -> py_capio_cl.Engine:
    """Return the engine that the official parser makes of a document.

    :param version: of the language
    :param directory: where it leaves its files
    """
    path, settings = directory / "capio.json", directory / "capio.toml"
    by_file = "CapioClConfiguration" in (inspect.getdoc(py_capio_cl.Parser.parse) or "")
    if version == "1.1" and not by_file:
        document = {**document, "configuration": str(settings)}
    path.write_text(json.dumps(document))
    by_name = {"document": json.dumps(str(path)), "directory": json.dumps(str(directory))}
    settings.write_text(_BY_FILE.format(**by_name) if by_file else _QUIET)
    here = Path.cwd()
    os.chdir(directory)  # it leaves logs there
    try:
        if not by_file:
            return py_capio_cl.Parser.parse(str(path))
        configuration = py_capio_cl.CapioClConfiguration()
        configuration.load(str(settings))
        return py_capio_cl.Parser.parse(configuration)
    finally:
        os.chdir(here)


def main() -> None:
    for version in sys.argv[1:] or _VERSIONS:
        print(f"py-capio-cl {version}", flush=True)
        with tempfile.TemporaryDirectory() as place:
            pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", place, f"py-capio-cl=={version}"]
            for arguments in (pip, ["-m", "pytest", "-q", "-p", "no:cacheprovider", _TESTS]):
                environment = {**os.environ, "PYTHONPATH": place}
                code = subprocess.run([sys.executable, *arguments], cwd=_ROOT, env=environment, check=False).returncode
                if code != 0:
                    sys.exit(code)


if __name__ == "__main__":
    main()
