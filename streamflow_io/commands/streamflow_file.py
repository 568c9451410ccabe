"""Reads the StreamFlow file as StreamFlow does, and reports its mistakes one by one, each with its line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from jsonschema import ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from streamflow.config.validator import SfValidator
from streamflow.core.context import StreamFlowContext
from streamflow.core.exception import WorkflowDefinitionException
from streamflow.ext.utils import load_extensions
from streamflow.log_handler import logger
from streamflow.main import build_context

from streamflow_io._streamflow import mend_containers_on_ssh_hosts
from streamflow_io.hints.errors import HintError, HintErrors, Loc, field_name, listed
from streamflow_io.hints.yaml_files import plain, read_yaml, source_of
from streamflow_io.wording import shortened

# Fields that users often write one level too high.
_LEVELS = {"scheduler": "scheduling: {scheduler: ...}", "policies": "scheduling: {policies: ...}"}


@contextmanager
def quiet_streamflow() -> Iterator[None]:
    """Load StreamFlow's extensions, which bring schemas of their own, and switch its log off."""
    logger.disabled = True  # the output of the command says what the log would
    try:
        load_extensions()
        yield
    finally:
        logger.disabled = False


def forgetful_context(config: Mapping[str, Any], path: Path) -> StreamFlowContext:
    """Return the context of a StreamFlow file. Nothing is kept: the user's database is not touched.

    :param config: the content of the file
    """
    mend_containers_on_ssh_hosts()  # as under the scheduler `sfio.io-aware`
    database = {"type": "default", "config": {"connection": ":memory:"}}
    return build_context({**config, "path": str(path.resolve()), "database": database})


def read_streamflow_file(path: Path) -> dict[str, Any]:
    """Return the content of a StreamFlow file. Call within :func:`quiet_streamflow`.

    :raises HintErrors: with all mistakes in the file; also if the file cannot be read or is no YAML, or names a
        deployment that is not there
    """
    document = read_yaml(path, "StreamFlow file")
    if not isinstance(document, Mapping):
        raise HintErrors.one(path, "StreamFlow file", "not a mapping", "version, workflows, ...", line=1)
    if "cwlVersion" in document:
        allowed = f"a StreamFlow file, which names this file; `streamflow-io validate {path.name}` checks it alone"
        raise HintErrors.one(path, "StreamFlow file", "this is a CWL file", allowed, line=1)
    validator = SfValidator()
    version, versions = document.get("version"), [*validator.schema.configs]
    if version not in versions:
        line, told = source_of(document, str(path)).line("version"), shortened(repr(plain(version)))
        message = f"{told} is no version of StreamFlow files" if "version" in document else "there is no version"
        raise HintErrors.one(path, "version", message, ", ".join(versions), line=line)
    try:
        content = dict(validator.validate_file(str(path)))
    except ValueError as error:  # StreamFlow makes dates of texts that look like one
        message = f"a value cannot be read: {error}"
        raise HintErrors.one(
            path, "StreamFlow file", message, "a date that exists, or quotes around the value"
        ) from None
    except WorkflowDefinitionException as error:
        mistakes = list(_mistakes(path, document, validator))
        # StreamFlow itself prints the whole schema for each mistake.
        message = str(error).partition("\n")[0]
        raise HintErrors(
            mistakes or [HintError(str(path), None, "StreamFlow file", message, "a valid StreamFlow file")]
        ) from None
    if unknown := list(_unknown_deployments(path, content)):
        raise HintErrors(unknown)
    return content


def mistake_at(path: Path, way: Loc, message: str, allowed: str) -> HintError:
    """Return a mistake at a value of a StreamFlow file, with the line of the value.

    :param way: the keys that lead to the value
    """
    line = source_of(read_yaml(path, "StreamFlow file"), str(path)).line(*way)
    return HintError(str(path), line, field_name("", way), message, allowed)


def unknown_steps(path: Path, workflow: str, steps: Collection[str]) -> Iterator[HintError]:
    """Yield the bindings of steps that a workflow does not have. StreamFlow ignores these bindings.

    :param steps: the paths of all steps, and of workflows that are steps
    """
    document: Any = plain(read_yaml(path, "StreamFlow file"))
    bindings = document["workflows"][workflow].get("bindings", [])
    for number, binding in enumerate(bindings):
        step = binding.get("step")
        if step is not None and str(PurePosixPath(step)) not in steps:
            way = ("workflows", workflow, "bindings", number, "step")
            yield mistake_at(path, way, f"unknown step {step!r}", listed(steps))


def _unknown_deployments(path: Path, document: Mapping[str, Any]) -> Iterator[HintError]:
    """Yield the names of deployments that a valid StreamFlow file does not have."""
    known = document.get("deployments") or document.get("models") or {}
    for way, name in _named_deployments(document):
        if name not in known:
            yield mistake_at(path, way, f"unknown deployment {name!r}", listed(known))


def _named_deployments(document: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    for workflow, content in document["workflows"].items():
        for number, binding in enumerate(content.get("bindings", [])):
            way: Loc = ("workflows", workflow, "bindings", number, "target")
            target = binding["target"]
            targets = [((*way, place), each) for place, each in enumerate(target if isinstance(target, list) else ())]
            for place, each in targets or [(way, target)]:
                yield from (((*place, key), each[key]) for key in ("deployment", "model") if key in each)
    for name, deployment in (document.get("deployments") or {}).items():
        wraps = deployment.get("wraps")
        if isinstance(wraps, Mapping):
            yield ("deployments", name, "wraps", "deployment"), wraps["deployment"]
        elif wraps is not None:
            yield ("deployments", name, "wraps"), wraps


def _mistakes(path: Path, document: Mapping[str, object], validator: SfValidator) -> Iterator[HintError]:
    schema = validator.schema.get_config(document["version"]).contents
    source = source_of(document, str(path))
    for error in validator_for(schema)(schema, registry=validator.schema.registry).iter_errors(plain(document)):
        error = best_match([error]) or error
        way = tuple(error.absolute_path)
        unknown = _unknown(error)
        line = source.line(*way, *unknown[:1])
        field = field_name("", way) or "StreamFlow file"
        yield HintError(str(path), line, field, shortened(error.message), _allowed(error, unknown))


def _unknown(error: ValidationError) -> list[str]:
    """Return the fields that an error says are unknown."""
    if error.validator not in ("additionalProperties", "unevaluatedProperties"):
        return []
    return [key for key in error.instance if key not in error.schema.get("properties", {})]


def _allowed(error: ValidationError, unknown: list[str]) -> str:
    levels = [_LEVELS[key] for key in unknown if key in _LEVELS and not error.absolute_path]
    if levels:
        return ", ".join(levels)
    fields = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
    if unknown and fields:
        return ", ".join(sorted(fields))
    match error.validator:
        case "enum":
            return ", ".join(map(str, error.validator_value))
        case "type":
            kinds = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
            return " or ".join(kinds)
    return "a valid StreamFlow file"
