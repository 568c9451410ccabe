"""The pages that follow from the code: message codes, the command line, the scheduler's config, the telemetry
records, the commands that were tried, the results of benchmarks.

`python -m scripts.reference` writes them into `docs/`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel

from scripts import records, results, tools
from streamflow_io.cli import GROUPS
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.messages.explanations import reference_page

DOCS = Path(__file__).parents[1] / "docs"


#: Arguments of several commands.
_COMMON: Mapping[str, str] = {
    "`STREAMFLOW_FILE`": "the StreamFlow file, as for `streamflow run`",
    "`RUN`": "the name of a run, `last`, or the path of telemetry",
    "`--workflow NAME`": "a workflow, if the StreamFlow file has several",
    "`-o`, `--output FILE`": "write into this file (default: print)",
    "`--force`": "replace FILE if it exists",
    "`--file FILE`": "the file with learned facts (default: learned.db in your data directory)",
}


def command_line() -> str:
    """The page of all commands with their options."""
    lines = [
        "# Command line",
        "",
        "This page is for you if you look for a command or an option. `streamflow-io COMMAND --help` prints the same.",
        "Each command has `--json`, for programs. The exit code is 0 if all is well, 1 if not, and 2 if the command",
        "line is wrong. `streamflow-io --version` prints the version.",
        "",
        "These arguments mean the same everywhere:",
        *_list(_COMMON.items()),
    ]
    for title, group in GROUPS.items():
        lines += ["", f"## {title[0].upper()}{title[1:]}"]
        for name, entry in group.items():
            parser = argparse.ArgumentParser(prog=f"streamflow-io {name}", add_help=False)
            import_module(f"{entry.package}.{name}").add_arguments(parser)
            lines += ["", f"### streamflow-io {name}", "", f"{_sentence(entry.text)}.", *_arguments(parser)]
            if entry.examples:
                examples = (f"streamflow-io {name} {example}".rstrip() for example in entry.examples)
                lines += ["", "```sh", *examples, "```"]
    return "\n".join([*lines, ""])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The arguments of a parser as a list, and those of the commands in it."""
    shown = [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]
    rows = [
        (_written(action), (action.help or "") % {"default": action.default})
        for action in shown
        if action.help is not argparse.SUPPRESS and action.dest not in ("help", "json")
    ]
    if common := [written for written, meaning in rows if _COMMON.get(written) == meaning]:
        yield from ("", f"Arguments: {', '.join(common)}.")
    if own := [row for row in rows if _COMMON.get(row[0]) != row[1]]:
        yield from _list(own)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help for choice in action._choices_actions}
            for name, inner in action.choices.items():
                yield from ("", f"#### {inner.prog}", "", f"{_sentence(texts[name] or name)}.", *_arguments(inner))


def _written(action: argparse.Action) -> str:
    """An argument as it is typed."""
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
    name = action.metavar if isinstance(action.metavar, str) else choices
    if not action.option_strings:
        return {"*": f"`[{name} ...]`", "+": f"`{name} ...`", "?": f"`[{name}]`"}.get(str(action.nargs), f"`{name}`")
    options = ", ".join(f"`{option}`" for option in action.option_strings)
    return options if action.nargs == 0 else f"{options[:-1]} {name}`"


def scheduler_config() -> str:
    """The page of the fields of the scheduler's config."""
    return "\n".join(
        [
            "# Scheduler config",
            "",
            "This page is for you if you look for a field of `config` of the scheduler `sfio.io-aware`, in the",
            "StreamFlow file. No field is needed. The [guide](guide.md#3-choose-the-scheduler) shows how to use them.",
            "",
            "```yaml",
            "scheduling:",
            "  scheduler: {type: sfio.io-aware, config: {}}",
            "```",
            *_fields(SchedulerConfig),
            "",
            "## storages",
            "",
            "Each entry is a device or file system with a bandwidth ([more](storage.md)).",
            *_fields(StorageConfig),
            "",
        ]
    )


def _fields(model: type[BaseModel]) -> Iterator[str]:
    rows = [
        (f"`{field.alias or name}`", field.description or "")
        for name, field in model.model_fields.items()
        if name != "class_"
    ]
    yield from _list(rows)


def _list(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield ""
    yield from records.items(rows)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


#: Each page, and what makes it.
PAGES: Mapping[str, Callable[[], str]] = {
    "messages.md": reference_page,
    "command-line.md": command_line,
    "scheduler-config.md": scheduler_config,
    "telemetry-records.md": records.page,
    "tools.md": tools.page,
    "benchmarks.md": results.page,
}

if __name__ == "__main__":
    for page, made in PAGES.items():
        (DOCS / page).write_text(made())
