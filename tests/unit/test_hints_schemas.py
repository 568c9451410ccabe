"""One source of truth: the schemas in the repository are what the models say."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from streamflow_io.hints import schemas
from streamflow_io.hints.errors import Level, Source
from streamflow_io.hints.models import HINT_CLASSES, NAMESPACE, StreamingRule
from streamflow_io.hints.parsing import parse_hint

COMMITTED = Path(__file__).parents[2]
REGENERATE = "run: python -m streamflow_io.hints.schemas"


def _parse(name: str, text: str) -> object:
    return YAML(typ="safe", pure=True).load(text) if name.endswith(".yml") else json.loads(text)


@pytest.mark.parametrize("name", sorted(schemas.files()))
def test_the_committed_schema_is_that_of_the_models(name: str) -> None:
    committed = (COMMITTED / name).read_text(encoding="utf-8")
    assert _parse(name, committed) == _parse(name, schemas.files()[name]), REGENERATE


def test_the_module_writes_what_it_says(tmp_path: Path) -> None:
    schemas.main([str(tmp_path)])
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {str(p.relative_to(tmp_path)): p.read_text(encoding="utf-8") for p in written} == schemas.files()


def test_salad_has_all_classes_and_fields() -> None:
    graph = YAML(typ="safe", pure=True).load(schemas.salad_schema())["$graph"]
    records = {record["name"]: record for record in graph if "name" in record}
    assert set(records) == {*HINT_CLASSES, "StreamingRule"}
    for name, model in {**HINT_CLASSES, "StreamingRule": StreamingRule}.items():
        assert set(records[name]["fields"]) == {field.alias or key for key, field in model.model_fields.items()}
        assert ("class" in records[name]["fields"]) == (records[name].get("extends") == "cwl:ProcessRequirement")
        # cwltool mistakes fields of these names for those of a process.
        assert {"inputs", "outputs"}.isdisjoint(records[name]["fields"])


DECLARED: dict[str, object] = {"port": "chunks", "of": "reads", "records": "vcf", "names": "chunk-%04d.vcf"}


def session(*rules: dict[str, object]) -> dict[str, object]:
    return {"class": "sfio:ReadSession", "rules": list(rules)}


GOOD: list[dict[str, object]] = [
    {"class": "sfio:IOTask"},
    {"class": f"{NAMESPACE}IOTask"},
    {"class": "sfio:StorageBandwidth", "storageBW": 20},
    {"class": "sfio:StorageBandwidth", "storageBW": "auto(10,50,4)", "storage": "s", "direction": "both"},
    {"class": "sfio:StorageBandwidth", "storageBW": "required", "within": 60, "limited": False},
    {"class": "sfio:StorageBandwidth", "storageBW": "required(1.5)"},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "files": ["*.bam"], "committed": "on_close:3"}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "committed": "on_file", "fileDeps": ["index"]}]},
    {
        "class": "sfio:Streaming",
        "rules": [{"port": "out", "committed": "on_n_files", "nFiles": 2, "mode": "no_update"}],
    },
    {"class": "sfio:Streaming", "rules": [{"port": "out", "start": "producer", "permanent": True, "homeNode": "/a"}]},
    session({"of": "reads"}),
    session({"of": "reads", "part": "range"}, {"of": "vcf", "part": "range", "records": "vcf", "parts": "n"}),
    session({"of": "reads", "port": "chunks"}),
    session({**DECLARED, "parts": 3}, {**DECLARED, "records": "vcf", "every": 3, "first": 0, "count": "n"}),
    session({"of": "vcf", "part": "range", "records": "bgzf:vcf"}),
    session({**DECLARED, "records": {"header": {"bytes": 32}, "record": {"bytes": 36}}, "chunk": 3}),
]
BAD: list[dict[str, object]] = [
    session({**DECLARED, "records": "bgzf:vcf", "every": 3}),
    {"class": "sfio:IOTsk"},
    {"class": "sfio:IOTask", "cores": 1},
    {"class": "sfio:StorageBandwidth"},
    {"class": "sfio:StorageBandwidth", "storageBW": 0},
    {"class": "sfio:StorageBandwidth", "storageBW": "fast"},
    {"class": "sfio:StorageBandwidth", "storageBW": "required(fast)"},
    {"class": "sfio:StorageBandwidth", "storageBW": "required", "within": 0},
    {"class": "sfio:StorageBandwidth", "storageBW": 1, "direction": "up"},
    {"class": "sfio:Streaming"},
    {"class": "sfio:Streaming", "rules": []},
    {"class": "sfio:Streaming", "rules": [{"mode": "update"}]},
    {"class": "sfio:Streaming", "rules": [{"port": "a/b"}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "filedeps": ["x"]}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "files": []}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "committed": "on_close:0"}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "committed": "on_file"}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "fileDeps": ["x"]}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "committed": "on_n_files"}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "committed": "on_n_files", "nFiles": 0}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "nFiles": 2}]},
    {"class": "sfio:Streaming", "rules": [{"port": "out", "homeNode": "a"}]},
    session({"port": "chunks"}),
    session({"of": "reads", "port": "chunks", "part": "range"}),
    session({"of": "reads", "port": "chunks", "every": 3}),
    session({"of": "reads", "parts": 3}),
    session({"of": "reads", "records": "vcf"}),
    session({"of": "reads", "part": "range", "names": "%d"}),
    session(DECLARED),
    session({**DECLARED, "parts": 3, "every": 3}),
    session({**DECLARED, "parts": 0}),
    session({**DECLARED, "parts": "a/b"}),
    session({**DECLARED, "every": 3, "names": "%d%d"}),
    session({**DECLARED, "every": 3, "names": "a/%d"}),
    session({**DECLARED, "every": 3, "records": "bam"}),
    session({**DECLARED, "every": 3, "records": {"header": {"bytes": 32}}}),
    session({**DECLARED, "every": 3, "records": {"record": {"bytes": 32, "lines": 2}}}),
    session({**DECLARED, "every": 3, "records": {"record": {}}}),
]


@cache
def validator(schema: Callable[[], dict[str, Any]]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize(("hint", "good"), [*((hint, True) for hint in GOOD), *((hint, False) for hint in BAD)])
def test_json_schemas_and_models_agree(hint: dict[str, object], good: bool) -> None:
    parsed, errors = parse_hint(hint, {"sfio": NAMESPACE}, Level.TOOL, Source("a.cwl"))
    assert (parsed is not None, not errors) == (good, good)
    for schema, document in (
        (schemas.hints_schema, [hint, {"class": "ToolTimeLimit", "timelimit": 3}]),
        (schemas.annotations_schema, {"steps": {"/a": [hint]}, "streamable": ["/a/out"]}),
    ):
        assert validator(schema).is_valid(document) is good


def test_the_schema_of_the_scheduler_config() -> None:
    validator = jsonschema.Draft202012Validator(schemas.scheduler_schema())
    storage = {"name": "ssd", "deployment": "hpc", "path": "/local", "scope": "node", "write": 450}
    assert validator.is_valid({"retry_delay": 3})
    assert validator.is_valid({"storages": [storage], "ioExecutors": 16, "runtime": "off"})
    wrong: list[dict[str, object]] = [{"ioExecutors": 0}, {"storages": [{**storage, "scope": "rack"}]}, {"storges": []}]
    assert not any(validator.is_valid(config) for config in wrong)
    # What StreamFlow is given has the same fields, and leaves the refusing to the parser.
    outline = schemas.scheduler_outline()
    full = schemas.scheduler_schema()
    assert outline["properties"].keys() == full["properties"].keys()
    storage_fields = full["$defs"]["StorageConfig"]["properties"]
    assert outline["properties"]["storages"]["items"]["properties"].keys() == storage_fields.keys()
    given = jsonschema.Draft202012Validator(outline)
    assert all(given.is_valid(config) for config in wrong)
    assert not given.is_valid([])
