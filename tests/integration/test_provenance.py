"""Later uses of a run by StreamFlow work on ours, too."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from lab import forked
from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.once import once
from lab.runs import RETRY, Bench


def streams() -> Document:
    """A workflow with streams into a tool, into each job of a scatter, as a list and as a record, and with the gate."""
    wrote = tool("echo $name; echo $name", {"name": "string"}, {"out": streamable("stdout")}, stdout="$(inputs.name)")
    read = tool("cat $file; echo", {"file": streamable()}, {"out": "stdout"}, stdout="$(inputs.file.basename)-read")
    rule = streaming({"port": "all", "committed": "on_close", "start": "producer"})
    filled = tool("mkdir all; echo 1 > all/1; echo 2 > all/2", {}, {"all": found("all", "Directory")}, [rule])
    pair = {"type": "record", "name": "pair"}
    made = {name: found(name, streamable=True) for name in ("left", "right")}
    taken = {name: streamable() for name in made}
    paired = tool("echo l > left; echo r > right", {}, {"pair": {"type": {**pair, "fields": made}}})
    both = {
        **tool("cat $0 $1", {}, {"out": "stdout"}, stdout="both"),
        "arguments": ["$(inputs.p.left)", "$(inputs.p.right)"],
    }
    both["inputs"] = {"p": {"type": {**pair, "fields": taken}}, "trace": "string"}
    each = {**tool('cat "$@"', {}, {"out": "stdout"}, stdout="each"), "arguments": ["sh"]}
    each["inputs"] = {"files": streamable("File[]", inputBinding={"position": 1}), "trace": "string"}
    listed = tool("cat $all/1 $all/2", {"all": "Directory"}, {"out": "stdout"}, stdout="listed")
    steps = {
        "a": {"run": wrote, "in": {"name": {"default": "one"}}},
        "b": {"run": read, "in": {"file": "a/out"}},
        "c": {"run": wrote, "in": {"name": {"default": ["two", "three"]}}, "scatter": "name"},
        "d": {"run": read, "in": {"file": "c/out"}, "scatter": "file"},
        "e": {"run": filled, "in": {}},
        "f": {"run": listed, "in": {"all": "e/all"}},
        "g": {"run": paired, "in": {}},
        "h": {"run": both, "in": {"p": "g/pair"}},
        "i": {"run": each, "in": {"files": "c/out"}},
    }
    return workflow({}, steps, {name: f"{name}/out" for name in "bdfhi"})


def crate_of(path: Path, name: str) -> list[dict[str, Any]]:
    streamflow(path, "run", str(path), "--name", name, "--outdir", str(path.parent / "out"))
    streamflow(path, "prov", name, "--file", str(path), "--outdir", str(path.parent), "--name", "crate.zip")
    with zipfile.ZipFile(path.parent / "crate.zip") as crate:
        graph: list[dict[str, Any]] = json.loads(crate.read("ro-crate-metadata.json"))["@graph"]
        # Each file of the crate is in the archive, with the content of its checksum.
        for entity in graph:
            if entity["@type"] == "File":
                assert hashlib.sha1(crate.read(entity["@id"])).hexdigest() == entity["sha1"]
    return graph


def without_chance(graph: list[dict[str, Any]]) -> list[str]:
    """Entities without times and the StreamFlow file; names from chance are replaced by what they stand for."""
    entities = {entity["@id"]: entity for entity in graph if entity.get("encodingFormat") != "application/yaml"}

    def told(value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return sorted((told(each, depth) for each in value), key=str)
        if isinstance(value, dict):
            if set(value) == {"@id"} and value["@id"].startswith(("#", "_:")):
                return told(entities[value["@id"]], depth - 1) if depth and value["@id"] in entities else ""
            return {key: told(each, depth) for key, each in value.items() if key not in _OF_CHANCE}
        return re.sub("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=/run)[0-9]+(?=/)", "", str(value))

    return sorted(str(told(entity, 3)) for entity in entities.values())


_OF_CHANCE = {"startTime", "endTime", "datePublished"}


def assert_same_crates(bench: Bench, document: Document, names: list[str], **fields: Any) -> None:
    """Compare the crate with that of plain StreamFlow.

    :param names: the inputs that the crate names as streamed
    """
    plain = crate_of(bench.write_plain(document, {}), "plain")
    ours = crate_of(bench.write(document, {}, io=True, **fields), "ours")
    (plugin,) = (entity for entity in ours if entity["@id"] == "#streamflow-io")
    assert plugin["softwareVersion"] == version("streamflow-io")
    (engine,) = (entity for entity in ours if "softwareAddOn" in entity)
    assert engine.pop("softwareAddOn") == {"@id": plugin["@id"]}
    added = [plugin]
    for streamed in [entity for entity in ours if entity.get("name") == "streamed inputs"]:
        assert sorted(streamed["value"]) == names
        (action,) = (entity for entity in ours if "additionalProperty" in entity)
        assert action.pop("additionalProperty") == {"@id": streamed["@id"]}
        added.append(streamed)
    assert len(added) == (2 if names else 1)
    ours = [entity for entity in ours if entity not in added]
    for graph in (plain, ours):
        (organized,) = (entity for entity in graph if entity["@type"] == "OrganizeAction")
        organized["object"] = [each for each in organized["object"] if each["@id"].startswith("#")]
        (root,) = (entity for entity in graph if entity["@id"] == "./")
        files = {entity["@id"] for entity in graph if entity.get("encodingFormat") == "application/yaml"}
        root["hasPart"] = [each for each in root["hasPart"] if each["@id"] not in files]
    assert without_chance(ours) == without_chance(plain)


def test_the_crate_of_a_run_that_streams_is_that_of_plain_streamflow(bench: Bench) -> None:
    names = ["b/run/file", "d/run/file", "h/run/p/left", "h/run/p/right", "i/run/files"]
    assert_same_crates(bench, streams(), names)


def given_up() -> Document:
    """A workflow with streams that become files, and a scatter with one such job."""
    wrote = tool("(echo $name; sleep 1; echo $name) > $name", {"name": "string"}, {"out": found("$(inputs.name)")})
    wrote["outputs"]["out"]["streamable"] = True

    def read(name: str, script: str) -> Document:
        return tool(script, {"file": streamable()}, {"out": "stdout"}, stdout=name)

    asks = "head -c 1 $file > first; cat first; test -s $file; cat $file"
    one = "case $file in */two) test -s $file;; esac; cat $file"
    steps = {
        "a": {"run": wrote, "in": {"name": {"default": "one"}}},
        "asks": {"run": read("asked", asks), "in": {"file": "a/out"}},
        "size": {"run": read("sized", "test -s $file && cat $file"), "in": {"file": "a/out"}},
        "whole": {"run": read("copied", "cat $file"), "in": {"file": "a/out"}},
        "c": {"run": wrote, "in": {"name": {"default": ["two", "three"]}}, "scatter": "name"},
        "some": {"run": read("$(inputs.file.basename).copied", one), "in": {"file": "c/out"}, "scatter": "file"},
    }
    return workflow({}, steps, {name: f"{name}/out" for name in ("asks", "size", "whole", "some")})


def test_a_stream_that_was_given_up_is_not_named(bench: Bench) -> None:
    assert_same_crates(bench, given_up(), ["some/run/file", "whole/run/file"])


def test_each_attempt_has_an_action(bench: Bench) -> None:
    """With plain StreamFlow, no crate can be made of a run that has tried a job again."""
    fails = "echo one; if test ! -e $TRACE.was; then touch $TRACE.was; sleep 1; exit 3; fi; echo two"
    first = tool(fails, {}, {"out": streamable("stdout")}, stdout="first")
    second = tool("cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="second")
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/out"}}}
    graph = crate_of(bench.write(workflow({}, steps, {"b": "b/out"}), {}, io=True, **RETRY), "ours")
    actions = [(e["name"][-1], e["actionStatus"]) for e in graph if e["@type"] == "CreateAction"]
    ended = [(step, f"{status}ActionStatus") for step in "ab" for status in ("Completed", "Failed")]
    assert sorted(actions) == [*ended, ("l", "CompletedActionStatus")]
    assert [e["value"] for e in graph if e.get("name") == "streamed inputs"] == [["b/run/file"]]


def nested() -> Document:
    """A workflow with streams in and out of a subworkflow, from a step with `when`, and to one."""
    wrote = tool(
        "echo $name; sleep 0.5; echo $name", {"name": "string"}, {"out": streamable("stdout")}, stdout="$(inputs.name)"
    )
    copied = tool(
        "cat $file; echo $name",
        {"file": streamable(), "name": "string"},
        {"out": streamable("stdout")},
        stdout="$(inputs.name)",
    )

    def copy(name: str, source: str, **fields: Any) -> Document:
        return {"run": copied, "in": {"file": source, "name": {"default": name}}, **fields}

    inner = workflow({"file": "File"}, {"k": copy("k", "file"), "l": copy("l", "k/out")}, {"out": "l/out"})
    steps = {
        "a": {"run": wrote, "in": {"name": {"default": "a"}}},
        "b": {"run": inner, "in": {"file": "a/out"}},
        "c": copy("c", "b/out"),
        "d": {"run": wrote, "in": {"name": {"default": "d"}, "yes": {"default": True}}, "when": "$(inputs.yes)"},
        "e": {"run": wrote, "in": {"name": {"default": "e"}, "yes": {"default": False}}, "when": "$(inputs.yes)"},
        "f": {
            **copy("f", "d/out"),
            "in": {
                "file": {"source": ["d/out", "e/out"], "pickValue": "first_non_null"},
                "name": {"default": "f"},
                "yes": {"default": True},
            },
            "when": "$(inputs.yes)",
        },
    }
    return workflow({}, steps, {"c": "c/out", "f": "f/out"})


def test_the_crate_of_subworkflows_and_conditions(bench: Bench) -> None:
    assert_same_crates(bench, nested(), ["b/run/k/run/file", "b/run/l/run/file", "c/run/file", "f/run/file"])


def streamflow(path: Path, *arguments: str) -> str:
    finished = forked.run("streamflow", *arguments, cwd=path.parent, environment={"XDG_DATA_HOME": str(path.parent)})
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


# The context comes from the library `rocrate`, because a test does not fetch it from its address.
VALIDATE = """
import json, sys
from pathlib import Path
import rocrate
import rocrate_validator.utils.document_loader as loader
from rocrate_validator import models, services
context = json.loads((Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_text())["@context"]
loader._fetch_json_ld = lambda url: {"@context": context}
result = services.validate(services.ValidationSettings(
    rocrate_uri=sys.argv[1], profile_identifier="provenance-run-crate-0.5",
    requirement_severity=models.Severity.REQUIRED, offline=True))
print("\\n".join(sorted({f"{issue.check.identifier} {issue.message}" for issue in result.get_issues()})))
"""
CHANCE = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\S+|0x[0-9a-f]+|_[0-9a-f]{12}|run[12]/"
)


def install(place: Path) -> str | None:
    """Make an environment with `roc-validator` and `runcrate`, which takes 0.2 GB; the reason why there can be none."""
    install = [str(place / "bin/pip"), "install", "-q", "roc-validator", "runcrate"]
    for command in ([sys.executable, "-m", "venv", str(place)], install):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode != 0:
            return f"the validators cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    return None


@pytest.fixture(scope="module")
def programs(common: Path) -> Path:
    """Where both are: in an environment of their own, because they want other versions of our dependencies."""
    if (given := os.environ.get("SFIO_TEST_CRATES")) is not None:
        return Path(given) / "bin"
    place = common / "crates"
    if (why := once(common / "crates-installed", lambda: install(place))) is not None:
        pytest.skip(why)
    return place / "bin"


def said(*command: str | Path) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sorted(CHANCE.sub("", line) for line in done.stdout.splitlines() if line.strip())


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_validators_see_no_difference(bench: Bench, programs: Path) -> None:
    crates = []
    for name, io in (("plain", False), ("ours", True)):
        path = bench.write(streams(), {}, io=io)
        crate_of(path, name)
        crates.append(path.parent / "crate.zip")
    plain, ours = ([*said(programs / "python", "-c", VALIDATE, crate)] for crate in crates)
    assert set(ours) <= set(plain), "the crate has mistakes that plain StreamFlow's has not"
    plain, ours = (said(programs / "runcrate", "report", crate) for crate in crates)
    assert [line for line in ours if "<-" in line] == [line for line in plain if "<-" in line]
    assert any("b/run/file" in line for line in ours)
