"""The messages between the driver and `sfio-node`, from one schema: `node/protocol.yaml`.

`python -m scripts.protocol` writes the classes of Python and the structures of Rust.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "node" / "protocol.yaml"

_FIELD = re.compile(r"(?P<type>\w+)(?P<list>\[\])?(?P<optional>\?)?(?:=(?P<default>[^. ]*))?\. (?P<says>.+)")
_WITH_INPUT = "(input) "
#: What is said of a message beside its fields.
_NOTES = ("says", "only", "owned", "event")
_WIDTH = 120


@dataclass(frozen=True)
class Field:
    """A field of a message.

    :ivar default: the value of a missing field as the schema has it, or None without such a value
    """

    name: str
    type: str
    is_list: bool
    is_optional: bool
    default: str | None
    says: str

    @classmethod
    def read(cls, name: str, text: str) -> Field:
        """Read a field from the schema.

        :raises ValueError: if the text is no type and no sentence
        """
        if not (match := _FIELD.fullmatch(text)):
            raise ValueError(f"{SCHEMA.name}: {name}: {text!r}: has to be `TYPE. A sentence.`")
        kind, is_list, is_optional, default, says = match.groups()
        return cls(name, kind, is_list is not None, is_optional is not None, default, says)


@dataclass(frozen=True)
class Message:
    """A message, or an object in one.

    :ivar name: in Python and in Rust
    :ivar event: the name of the event, or an empty text
    :ivar only: `node` or `driver`, if only that side has the message
    :ivar is_owned: whether the structure in Rust has its own copies of texts
    """

    name: str
    says: str
    fields: tuple[Field, ...]
    event: str
    only: str
    is_owned: bool

    @classmethod
    def read(cls, name: str, notes: Mapping[str, Any], event: str = "") -> Message:
        """Read a message from the schema."""
        fields = tuple(Field.read(field, text) for field, text in notes.items() if field not in _NOTES)
        event = event or notes.get("event", "")
        return cls(name, notes["says"], fields, event, notes.get("only", ""), "owned" in notes)


@dataclass(frozen=True)
class Choice:
    """A set of words.

    :ivar words: each word, and its meaning
    :ivar default: the word of a missing field, or an empty text
    :ivar with_input: the words that come with a field `input`
    """

    name: str
    says: str
    words: Mapping[str, str]
    default: str
    with_input: frozenset[str]

    @classmethod
    def read(cls, name: str, notes: Mapping[str, str]) -> Choice:
        """Read a choice from the schema."""
        words = {word: says for word, says in notes.items() if word not in ("says", "default")}
        with_input = frozenset(word for word, says in words.items() if says.startswith(_WITH_INPUT))
        plain = {word: says.removeprefix(_WITH_INPUT) for word, says in words.items()}
        return cls(name, notes["says"], plain, notes.get("default", ""), with_input)


class Schema:
    """All types, choices and messages."""

    def __init__(self, text: str) -> None:
        found = YAML(typ="safe", pure=True).load(text)
        self.types: Mapping[str, Mapping[str, str]] = found["types"]
        self.choices = {name: Choice.read(name, notes) for name, notes in found["choices"].items()}
        self.asked, self.shared, self.told, self.said = (
            [Message.read(name, notes) for name, notes in found[group].items()]
            for group in ("asked", "shared", "told", "said")
        )
        self.events = [
            Message.read(f"{name.capitalize()}Event", notes, event=name) for name, notes in found["events"].items()
        ]

    @cached_property
    def messages(self) -> Mapping[str, Message]:
        """All messages by their names."""
        every = (*self.shared, *self.asked, *self.told, *self.events, *self.said)
        return {message.name: message for message in every}


class Python:
    """Writes `streamflow_io/runtime/protocol.py`."""

    path = ROOT / "streamflow_io" / "runtime" / "protocol.py"

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def text(self) -> str:
        """The whole file."""
        schema = self._schema
        read = [event for event in schema.events if event.only != "node"]
        answers = [message for message in schema.said if message.event and message.name != "ReadyEvent"]
        return "\n".join(
            [
                '"""Messages between the driver and `sfio-node`.',
                "",
                "`scripts/protocol.py` writes this file from `node/protocol.yaml`, which says what each field means.",
                '"""',
                "",
                "from __future__ import annotations",
                "",
                "from typing import Literal",
                "",
                "from .values import ByteString, DriverMessage, Extent, Message, Path, Piece, Target",
                "",
                *self._choices(),
                *self._classes((*schema.shared, *schema.asked, *schema.told)),
                *self._class(_JOB_EVENT),
                *self._classes(read),
                *self._classes(schema.said),
                "",
                "",
                *_union("Event", read),
                "",
                "#: The lines that only a conversing `serve` prints.",
                *_union("Said", answers),
                "",
            ]
        )

    def _choices(self) -> Iterator[str]:
        for choice in self._schema.choices.values():
            words = ", ".join(f'"{word}"' for word in choice.words)
            yield f"#: {choice.says}"
            if len(line := f"{choice.name} = Literal[{words}]") <= _WIDTH:
                yield line
            else:
                yield from (f"{choice.name} = Literal[", *(f'    "{word}",' for word in choice.words), "]")

    def _classes(self, messages: Iterable[Message]) -> Iterator[str]:
        for message in messages:
            yield from self._class(message)

    def _class(self, message: Message) -> Iterator[str]:
        base = "JobEvent" if message in self._schema.events else "Message"
        base = "DriverMessage" if message in self._schema.asked else base
        tag = f', tag_field="event", tag="{message.event}"' if message.event else ""
        yield from ("", "", f"class {message.name}({base}, frozen=True, kw_only=True{tag}):")
        yield from (*_wrapped(f'"""{message.says}"""', "    "), "")
        for field in message.fields:
            yield f"    {field.name}: {self._type(field)}"

    def _type(self, field: Field) -> str:
        kind = self._schema.types[field.type]["python"] if field.type in self._schema.types else field.type
        kind = f"tuple[{kind}, ...]" if field.is_list else kind
        if field.is_optional:
            return f"{kind} | None = None"
        if field.default is None:
            return f"{kind} = ()" if field.is_list else kind
        return f"{kind} = {self._default(field, field.default)}"

    def _default(self, field: Field, default: str) -> str:
        if field.is_list:
            return f"({default[1:-1]},)"
        if field.type in self._schema.messages:
            return f"{field.type}()"
        if field.type in self._schema.choices or not default:
            return f'"{default}"'
        return {"true": "True", "false": "False"}.get(default, default)


class Rust:
    """Writes `node/src/protocol/messages.rs`."""

    path = ROOT / "node" / "src" / "protocol" / "messages.rs"

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._defaults: list[str] = []

    def text(self) -> str:
        """The whole file."""
        schema = self._schema
        events = [event for event in schema.events if event.only != "driver"]
        said = [message for message in schema.said if message.only != "driver"]
        body = [
            *(line for choice in schema.choices.values() for line in self._choice(choice)),
            *(line for message in schema.shared for line in self._struct(message, reads=True, writes=True)),
            *(line for message in schema.asked for line in self._struct(message, reads=True)),
            *(line for message in (*schema.told, *events, *said) for line in self._struct(message, writes=True)),
            *self._union(events),
            *self._defaults,
        ]
        return "\n".join([*self._head("\n".join(body)), *body, ""])

    def _head(self, body: str) -> Iterator[str]:
        """The beginning of the file, with the imports that the body needs."""
        yield from (
            "//! Messages between the driver and `sfio-node`.",
            "//!",
            "//! `scripts/protocol.py` writes this file from `node/protocol.yaml`, which says what each field means.",
            "",
        )

        def uses(path: str, *names: str) -> Iterator[str]:
            needed = [name for name in names if re.search(rf"[^\w:]{name}\b", body)]
            if needed:
                inner = needed[0] if len(needed) == 1 else "{" + ", ".join(needed) + "}"
                if len(line := f"use {path}::{inner};") <= _WIDTH:
                    yield line
                else:
                    lines = wrap(f"{', '.join(needed)},", _WIDTH, initial_indent="    ", subsequent_indent="    ")
                    yield from (f"use {path}::{{", *lines, "};")

        yield from uses("std::borrow", "Cow")
        yield from uses("std::ffi", "OsStr", "OsString")
        yield from uses("std::net", "SocketAddr")
        yield from uses("std::num", "NonZeroU32", "NonZeroU64")
        yield from uses("std::path", "Path", "PathBuf")
        yield from ("", "use serde::{Deserialize, Serialize};", "")
        yield from uses("crate::protocol::json", "bytes", "ByteString")
        yield from uses(
            "crate::protocol::values",
            *("absolute_path", "absolute_paths", "name_of_job", "optional_absolute_path", "optional_path"),
            *("path", "Digest", "Extent", "Json", "Piece", "Target"),
        )

    def _choice(self, choice: Choice) -> Iterator[str]:
        yield from ("", f"/// {choice.says}")
        derived = ["Clone", "Copy", "Debug", "Default", "PartialEq", "Eq", "Hash", "Serialize", "Deserialize"]
        unwanted = {"Default"} if not choice.default else set()
        unwanted |= {"Copy", "Hash", "Deserialize"} if choice.with_input else set()
        yield f"#[derive({', '.join(name for name in derived if name not in unwanted)})]"
        if len({word.partition("_")[0] for word in choice.words}) == 1:
            yield '#[expect(clippy::enum_variant_names, reason = "the words are those of the hints")]'
        tag = f'tag = "{choice.name.lower()}", ' if choice.with_input else ""
        yield from (f'#[serde({tag}rename_all = "snake_case")]', f"pub enum {choice.name} {{")
        for word, says in choice.words.items():
            yield f"    /// {_sentence(says)}"
            if word == choice.default:
                yield "    #[default]"
            yield f"    {_camel(word)}" + (" { input: String }," if word in choice.with_input else ",")
        yield "}"

    def _struct(self, message: Message, *, reads: bool = False, writes: bool = False) -> Iterator[str]:
        lifetime = "<'a>" if self._is_borrowed(message, reads) else ""
        derived = ["Clone", "Debug", "PartialEq"]
        derived += ["Copy"] * (reads and writes) + ["Eq"] * reads
        derived += ["Default"] * (not lifetime and self._has_default(message))
        derived += ["Serialize"] * writes + ["Deserialize"] * reads
        yield from ("", f"/// {message.says}", f"#[derive({', '.join(derived)})]")
        is_tagged = message in self._schema.said and message.event
        if reads:
            yield "#[serde(deny_unknown_fields)]"
        elif is_tagged:
            yield f'#[serde(tag = "event", rename = "{message.event}")]'
        yield f"pub struct {message.name}{lifetime} {{"
        for field in self._fields(message):
            if attributes := [*self._attributes(message, field, reads, writes)]:
                yield f"    #[serde({', '.join(attributes)})]"
            yield f"    pub {field.name}: {self._type(message, field, reads)},"
        yield "}"
        if reads and not self._has_default(message) and self._is_optional(message):
            yield from self._default(message)

    def _is_optional(self, message: Message) -> bool:
        """Whether another message may be without this one."""
        others = (field for other in self._schema.messages.values() for field in other.fields)
        return any(field.type == message.name and field.default == "{}" for field in others)

    def _default(self, message: Message) -> Iterator[str]:
        yield from ("", f"impl Default for {message.name} {{", "    fn default() -> Self {", "        Self {")
        for field in message.fields:
            has_own = field.default not in (None, "0", "false", "{}")
            value = f"{_snake(message.name)}_{field.name}()" if has_own else "Default::default()"
            yield f"            {field.name}: {value},"
        yield from ("        }", "    }", "}")

    def _fields(self, message: Message) -> Iterator[Field]:
        """The fields of a structure; `input` is inside of the reason."""
        choices = [self._schema.choices[field.type] for field in message.fields if field.type in self._schema.choices]
        inside = {"input"} if any(choice.with_input for choice in choices) else set()
        yield from (field for field in message.fields if field.name not in inside)

    def _is_borrowed(self, message: Message, reads: bool) -> bool:
        if reads or message.is_owned:
            return False
        return any("'a" in self._type(message, field, reads) for field in self._fields(message))

    def _has_default(self, message: Message) -> bool:
        """Whether each field has a value without being given one."""
        return all(
            field.is_list
            or field.is_optional
            or field.type in ("text", "phrase", "flag", "count", "small", "size", "seconds", "time", "pid", "code")
            or (field.type in self._schema.choices and bool(self._schema.choices[field.type].default))
            or field.default == "{}"
            or (field.type == "path" and message.is_owned)
            for field in message.fields
        ) and not any(field.default not in (None, "0", "false", "{}", "") for field in message.fields)

    def _type(self, message: Message, field: Field, reads: bool) -> str:
        kind = field.type
        if kind in self._schema.types:
            notes = self._schema.types[kind]
            owned = reads or (message.is_owned and "static" not in notes.get("told", ""))
            kind = notes["rust"] if owned else notes.get("told", notes["rust"])
        elif kind in self._schema.messages and self._is_borrowed(self._schema.messages[kind], reads):
            kind += "<'a>"
        if field.is_list:
            kind = f"Vec<{kind}>" if reads or message.is_owned else f"&'a [{kind}]"
        elif kind == "FileIdentity" and not reads:
            kind = "&'a FileIdentity"
        return f"Option<{kind}>" if field.is_optional else kind

    def _attributes(self, message: Message, field: Field, reads: bool, writes: bool) -> Iterator[str]:
        notes = self._schema.types.get(field.type, {})
        if field.type in self._schema.choices and self._schema.choices[field.type].with_input:
            yield "flatten"
        if reads:
            yield from self._reading(message, field, notes.get("read"))
        elif message.is_owned and "write" in notes:
            yield f'with = "{notes["write"]}"'
        if writes and field.is_optional:
            yield 'skip_serializing_if = "Option::is_none"'

    def _reading(self, message: Message, field: Field, read: str | None) -> Iterator[str]:
        if field.default not in (None, "0", "false", "{}") and field.type not in self._schema.choices:
            name = f"{_snake(message.name)}_{field.name}"
            value = f"vec!{field.default}" if field.is_list else field.default
            kind = self._type(message, field, reads=True)
            self._defaults += ["", f"fn {name}() -> {kind} {{", f"    {value}", "}"]
            yield f'default = "{name}"'
        elif field.is_optional:
            # An `Option` is None by itself, but not with a function that reads it.
            yield from ("default",) if read else ()
        elif field.is_list or field.default is not None:
            yield "default"
        if read:
            prefix = "optional_" if field.is_optional else ""
            yield f'deserialize_with = "{prefix}{read}{"s" if field.is_list else ""}"'

    def _union(self, events: list[Message]) -> Iterator[str]:
        yield from ("", "/// A line of `events.jsonl`, without its time.")
        yield "#[derive(Clone, Debug, PartialEq, Serialize)]"
        yield from ('#[serde(tag = "event", rename_all = "snake_case")]', "pub enum Event<'a> {")
        for event in events:
            lifetime = "<'a>" if self._is_borrowed(event, reads=False) else ""
            yield f"    {_camel(event.event)}({event.name}{lifetime}),"
        yield "}"


_JOB_EVENT = Message.read(
    "JobEvent",
    {"says": "Something that has happened to a job.", "job": "text. The job.", "time": "time. When it has happened."},
)


def _union(name: str, messages: Iterable[Message]) -> Iterator[str]:
    first, *rest = (message.name for message in messages)
    if len(line := f"{name} = {' | '.join((first, *rest))}") <= _WIDTH:
        yield line
    else:
        yield from (f"{name} = (", f"    {first}", *(f"    | {other}" for other in rest), ")")


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_long_words=False)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text[0] != "`" else f"{text}."


def _camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_"))


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def files() -> dict[Path, str]:
    """Each generated file and its text."""
    schema = Schema(SCHEMA.read_text(encoding="utf-8"))
    return {writer.path: writer.text() for writer in (Python(schema), Rust(schema))}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
