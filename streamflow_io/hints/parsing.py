"""Turns plain mappings that a user wrote into models, or into mistakes with their lines."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from streamflow_io.wording import shortened

from .errors import HintError, Level, Loc, Located, Source, field_name
from .fields import Model
from .models import HINT_CLASSES, NAMESPACE, PREFIX, Hint

M = TypeVar("M", bound=Model)
CLASSES = ", ".join(f"{PREFIX}:{name}" for name in HINT_CLASSES)
DECLARATION = f'$namespaces: {{{PREFIX}: "{NAMESPACE}"}}'


def parse_model(
    model: type[M], raw: Mapping[str, object], name: str, source: Source
) -> tuple[M | None, list[HintError]]:
    """Validate plain data.

    :param name: the name of the data in errors; the names of fields are appended
    :return: the model and no error, or None and all errors
    """
    try:
        return model.model_validate(raw), []
    except ValidationError as invalid:
        details = [detail for detail in invalid.errors(include_url=False) if not _follows(detail)]
        return None, [_error(model, raw, detail, name, source) for detail in details]


def parse_hint(
    raw: object, namespaces: Mapping[str, str], level: Level, source: Source
) -> tuple[Located[Hint] | None, list[HintError]]:
    """Validate one entry of a CWL `hints` list, or of a step in the annotations file.

    :param namespaces: `$namespaces` of the document; empty after `cwltool --pack`, which writes full names
    :return: the hint; or errors; or neither, if the entry is no hint of StreamFlow-IO
    """
    if not isinstance(raw, Mapping):
        return None, [_no_class(str(raw), source)] if looks_ours(str(raw)) else []
    class_ = raw.get("class")
    if class_ is None or class_ == "class":
        named = [str(key) for key in (*raw, *raw.values()) if isinstance(key, str) and looks_ours(key)]
        return None, [_no_class(named[0], source)] if named else []
    name, problem = class_name(str(class_), namespaces)
    if problem is not None:
        message, allowed = problem
        return None, [HintError(source.file, source.line("class"), "class", message, allowed)]
    if name is None:
        return None, []
    qualified = f"{PREFIX}:{name}"
    hint, errors = parse_model(HINT_CLASSES[name], {**raw, "class": qualified}, qualified, source)
    return None if hint is None else Located(hint, level, qualified, source), errors


def class_name(class_: str, namespaces: Mapping[str, str]) -> tuple[str | None, tuple[str, str] | None]:
    """Return the name of a hint class, from `sfio:IOTask` or its full name.

    :return: the name; or a message and what is allowed; or neither, if the class is not of StreamFlow-IO
    """
    prefix, colon, local = class_.partition(":")
    if class_.startswith(NAMESPACE):
        local = class_[len(NAMESPACE) :]
    elif colon and prefix in namespaces:
        if namespaces[prefix] != NAMESPACE:
            if prefix == PREFIX and local in HINT_CLASSES:
                return None, (f"{class_!r}: {PREFIX} is declared as {namespaces[prefix]!r}", DECLARATION)
            return None, None
    elif colon and (prefix == PREFIX or local in HINT_CLASSES):
        return None, (f"{class_!r}: the prefix {prefix!r} is not declared in $namespaces", DECLARATION)
    elif not colon and class_ in HINT_CLASSES:
        return None, (
            f"{class_!r} has no prefix",
            f"{PREFIX}:{class_}" + ("" if PREFIX in namespaces else f", with {DECLARATION}"),
        )
    else:
        return None, None
    if local not in HINT_CLASSES:
        return None, (f"unknown class {class_!r}", CLASSES)
    return local, None


def looks_ours(text: str) -> bool:
    """Whether a name is meant as a hint class of StreamFlow-IO."""
    return text.startswith((NAMESPACE, f"{PREFIX}:")) or text in HINT_CLASSES


def _no_class(text: str, source: Source) -> HintError:
    return HintError(
        source.file,
        source.line(),
        "hints",
        f"{text!r} is not written as a hint",
        "a list of `- class: sfio:...` entries",
    )


def _error(model: type[Model], raw: object, detail: ErrorDetails, name: str, source: Source) -> HintError:
    loc = tuple(_way(raw, detail["loc"]))
    owner = _model_at(model, loc[:-1])
    if loc and owner is not None and loc[-1] in owner.model_fields:
        loc = (*loc[:-1], _written(owner, str(loc[-1])))  # a default goes by its name in Python
    message, allowed = _describe(owner, detail, loc)
    return HintError(source.file, source.line(*loc), field_name(name, loc), message, allowed)


def _follows(detail: ErrorDetails) -> bool:
    """Whether an error says nothing new: it concerns a default, or a length, of a value that has an error itself."""
    if detail["type"] == "too_short":
        return len(detail["input"]) > 0
    return detail["type"] == "default_factory_not_called"


def _written(owner: type[BaseModel], name: str) -> str:
    return owner.model_fields[name].alias or name


def _way(raw: object, loc: Loc) -> Iterator[str | int]:
    """Yield the keys of a location without additions of pydantic: tags of unions, `[key]`."""
    for position, key in enumerate(loc):
        if isinstance(raw, Mapping | list | tuple) and key in _keys(raw):
            raw = raw[key]  # type: ignore[index]
        elif position < len(loc) - 1 or key == "[key]" or not isinstance(raw, Mapping | list | tuple):
            continue
        yield key


def _keys(raw: Mapping[str, object] | Sequence[object]) -> Collection[str | int]:
    return range(len(raw)) if isinstance(raw, Sequence) else raw.keys()


def _describe(owner: type[BaseModel] | None, detail: ErrorDetails, loc: Loc) -> tuple[str, str]:
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    fields = {_written(owner, name): field for name, field in owner.model_fields.items()} if owner else {}
    if kind == "sfio":
        return str(context["message"]), str(context["allowed"])
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(loc[-1]), fields, n=1) if loc else []
        return "unknown field", ", ".join(dict.fromkeys([*near, *fields]))
    if kind == "literal_error":
        return f"{shortened(repr(value))} is not allowed", str(context["expected"])
    field = fields.get(str(loc[-1])) if loc else None
    allowed = field.description if field is not None and field.description else str(detail["msg"])
    return "missing" if kind == "missing" else f"{shortened(repr(value))} is not allowed", allowed


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    """Return the model that holds the field below a location."""
    current: type[BaseModel] | None = model
    for key in loc:
        if isinstance(key, int) or current is None:
            continue
        field = next((f for name, f in current.model_fields.items() if key in (name, f.alias)), None)
        current = next(_models_in(field.annotation), None) if field is not None else current
    return current


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    # For Python 3.10, `tuple[int]` is a type, too.
    if get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
