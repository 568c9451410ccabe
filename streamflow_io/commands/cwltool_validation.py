"""cwltool's own validation of a CWL document and its inputs, with its extensions and the schema of the hints."""

from __future__ import annotations

import argparse
import io
import logging
import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import cast

from cwl_utils.types import CWLObjectType

from streamflow_io.errors import WITH_CWLTOOL, said
from streamflow_io.hints.cwl import Fetcher
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.schemas import SALAD_URI, add_hint_classes, salad_schema
from streamflow_io.hints.yaml_files import read_yaml

try:
    from cwltool import process
    from cwltool.argparser import arg_parser
    from cwltool.context import LoadingContext
    from cwltool.main import main, setup_schema
    from cwltool.update import ALLUPDATES
except ModuleNotFoundError:
    is_installed = False
else:
    is_installed = True

# Messages of cwltool about every URN, whose classes the rules of StreamFlow-IO check, and traces of its loader.
_NOISE = re.compile(r"scheme 'urn'|prefix 'urn'|^failed$|^loader is \d+$")
_SORRY = "I'm sorry, I couldn't load this CWL file.\nThe error was: "
# schema-salad wraps its messages into a column to the right of the path, however long that is.
_CONTINUED = re.compile(r"\n {12,}")


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().replace(", try again with --debug for more information", "").rstrip()
        message = _CONTINUED.sub(" ", message).removeprefix(_SORRY)
        if record.levelno >= logging.WARNING and _NOISE.search(message) is None:
            self.messages.append(message)
            if record.levelno >= logging.ERROR:
                self.errors.append(message)


def run_cwltool(
    workflow: str, job: str | None, version: str = "v1.2", *, with_our_schema: bool = True
) -> tuple[bool, tuple[str, ...]]:
    """Run `cwltool --validate`. Where cwltool is not installed, a message says so.

    :param version: the CWL version
    :param with_our_schema: check the names and types of the fields of StreamFlow-IO's hints
    :return: whether all is valid; the errors, or else the warnings
    """
    if not is_installed:
        return True, (f"{workflow}: only the hints are checked. For all of CWL: {WITH_CWLTOOL}",)
    options = ["--validate", "--quiet", "--skip-schemas", "--disable-color"]
    collector = _Collector()
    # cwltool makes directories for a job that it does not run, and leaves them.
    with tempfile.TemporaryDirectory() as directory:
        options += ["--tmpdir-prefix", f"{directory}/", "--tmp-outdir-prefix", f"{directory}/"]
        arguments = arg_parser().parse_args([*options, workflow, *([job] if job is not None else [])])
        context = LoadingContext(vars(arguments))
        context.fetcher_constructor = Fetcher
        try:
            code = main(
                args=arguments,
                stdout=io.StringIO(),
                logger_handler=collector,
                loadingContext=context,
                custom_schema_callback=lambda: _use_schema(version, with_our_schema),
            )
        except SystemExit:  # without a word, if the job is no mapping
            code = 1
        except Exception as error:  # cwltool means to catch all exceptions of its own
            code = 1
            collector.errors.append(f"{workflow}: {said(error)}")
    if code != 0 and job is not None and (why := _wrong_job(job)) is not None:
        return False, (why,)
    return code == 0, tuple(dict.fromkeys(collector.errors if code != 0 and collector.errors else collector.messages))


def _wrong_job(job: str) -> str | None:
    """Say why a file is no job file; None: the mistake is another one."""
    try:
        document = read_yaml(Path(job), "job file")
    except HintErrors as errors:
        error = errors.errors[0]
        return f"{job}{'' if error.line is None else f':{error.line}'}: {error.message}"
    if isinstance(document, Mapping):
        return None
    return f"{job}: this is no job file: allowed are lines as `INPUT: VALUE`, or {{}} without inputs"


def _use_schema(version: str, ours: bool) -> None:
    # All versions: cwltool updates a document to a version of its own before it loads the files of `run`.
    for each in ALLUPDATES:
        schema = _schema(each, ours)
        if process.custom_schemas.get(each) == schema:
            continue
        if schema is None:
            process.use_standard_schema(each)
        else:
            process.use_custom_schema(each, *schema)
    # cwltool would parse the whole schema of v1.0 for these three types, which takes a third of its time.
    types = process.get_schema(version)[3].idx
    process.SCHEMA_ANY = cast(CWLObjectType, types["https://w3id.org/cwl/salad#Any"])
    process.SCHEMA_FILE = cast(CWLObjectType, types["https://w3id.org/cwl/cwl#File"])
    process.SCHEMA_DIR = cast(CWLObjectType, types["https://w3id.org/cwl/cwl#Directory"])


@cache
def _schema(version: str, ours: bool) -> tuple[str, str] | None:
    """Return the name and text of the schema of a CWL version, with cwltool's extensions. None: the standard schema."""
    name, text = _extensions().get(version, ("", None))
    if ours:
        return SALAD_URI, salad_schema() if text is None else add_hint_classes(text)
    return None if text is None else (name, text)


@cache
def _extensions() -> dict[str, tuple[str, str]]:
    """Return the schemas that cwltool uses with `--enable-ext`, by CWL version."""
    setup_schema(argparse.Namespace(enable_ext=True), None)
    return dict(process.custom_schemas)
