"""The models: defaults, immutability, fields that go together, storages."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.errors import HintErrors, Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import NAMESPACE, IOTask, StorageBandwidth, StreamingRule
from streamflow_io.hints.parsing import parse_hint
from streamflow_io.hints.rules import check_storages
from streamflow_io.hints.yaml_files import parse_scheduler_config


@pytest.mark.parametrize(
    ("mode", "start", "expected"),
    [
        (None, None, "commit"),
        ("update", None, "commit"),
        ("no_update", None, "producer"),
        ("update", "producer", "producer"),
        ("no_update", "commit", "commit"),
    ],
)
def test_start_depends_on_mode(mode: str | None, start: str | None, expected: str) -> None:
    given = {"port": "out", "mode": mode, "start": start}
    rule = StreamingRule.model_validate({key: value for key, value in given.items() if value is not None})
    assert rule.start == expected


def test_a_rule_survives_its_json() -> None:
    rule = StreamingRule.model_validate(
        {"port": "out", "files": ["a*"], "committed": "on_file", "fileDeps": ["index"], "mode": "no_update"}
    )
    assert StreamingRule.model_validate(rule.model_dump(by_alias=True, mode="json")) == rule
    for hint in ({"storageBW": "auto(1,2,3)"}, {"storageBW": "required(1.5)", "within": 60}):
        bandwidth = StorageBandwidth.model_validate(hint)
        assert StorageBandwidth.model_validate(bandwidth.model_dump(by_alias=True, mode="json")) == bandwidth
    assert IOTask.model_validate({"class": "sfio:IOTask"}) == IOTask()


@pytest.mark.parametrize(
    ("fields", "is_limited"),
    [
        ({"storageBW": 20}, False),
        ({"storageBW": 20, "limited": True}, True),
        ({"storageBW": "required"}, True),
        ({"storageBW": "required", "limited": False}, False),
    ],
)
def test_what_is_limited_by_default(fields: dict[str, object], is_limited: bool) -> None:
    assert StorageBandwidth.model_validate(fields).is_limited is is_limited


@pytest.mark.parametrize(("kind", "is_right"), [("local", False), ("ssh", True)])
def test_other_nodes_may_have_more_memory_than_the_driver_s(tmp_path: Path, kind: str, is_right: bool) -> None:
    file = tmp_path / "streamflow.yml"
    file.write_text(json.dumps({"version": "v1.0", "deployments": {"d": {"type": kind, "config": {}}}}))
    config = {"intermediates": "remove", "memory": "900TB"}
    if is_right:
        assert parse_scheduler_config(config, Source(str(file))).memory == 900 * 10**12
    else:
        with pytest.raises(HintErrors, match="more than the memory of this node"):
            parse_scheduler_config(config, Source(str(file)))


def test_bandwidth_of_a_storage() -> None:
    both = StorageConfig(name="s", path="/s", write=450, read=470)
    one = StorageConfig(name="s", path="/s", write=450)
    assert [both.bandwidth(way) for way in ("read", "write", "both")] == [470, 450, 450]
    assert [one.bandwidth(way) for way in ("read", "write", "both")] == [450, 450, 450]


@pytest.mark.parametrize(
    ("config", "field", "message", "allowed"),
    [
        ({"storage": []}, "storage", "unknown field", "storages, annotations, ioExecutors, oversubscribe"),
        ({"ioExecutors": 0}, "ioExecutors", "0 is not allowed", "a whole number from 1"),
        ({"ioExecutors": 10**20}, "ioExecutors", f"{10**20} is not allowed", "below 10^9"),
        ({"storages": [{"name": "s", "path": "/s", "write": 1e300}]}, "storages[0].write", "1e+300", "up to 10^12"),
        ({"annotations": 3}, "annotations", "3 is not allowed", "or a path for each workflow, by its name"),
        ({"annotations": {"one": ""}}, "annotations", "{'one': ''} is not allowed", "the path of an annotations file"),
        ({"oversubscribe": "always"}, "oversubscribe", "'always' is not allowed", "'idle', 'gangs' or 'never'"),
        ({"runtime": "fuse"}, "runtime", "'fuse' is not allowed", "'embedded'"),
        ({"intermediates": "delete"}, "intermediates", "'delete' is not allowed", "'keep', 'remove' or 'window'"),
        ({"intermediates": "remove", "diskLimit": 0}, "diskLimit", "0 is no size", "as in `500GB`"),
        ({"intermediates": "remove", "diskLimit": "0GB"}, "diskLimit", "'0GB' is no size", "from 1MB"),
        ({"intermediates": "remove", "diskLimit": "lots"}, "diskLimit", "'lots' is no size", "of MB, GB or TB"),
        ({"intermediates": "remove", "memory": 0}, "memory", "0 is no size", "as in `500GB`"),
        ({"intermediates": "remove", "memory": "-1GB"}, "memory", "'-1GB' is no size", "from 1MB"),
        ({"memory": "1GB"}, "memory", "no effect with `intermediates: keep`", "`intermediates: remove`"),
        ({"diskLimit": "500GB"}, "diskLimit", "no effect with `intermediates: keep`", "`intermediates: remove`"),
        ({"storages": [{"name": "s", "path": "/s"}]}, "storages[0]", "storage 's' has no bandwidth", "write, read"),
        ({"storages": [{"name": "s", "path": "s", "write": 1}]}, "storages[0].path", "'s' is not absolute", "absolute"),
        ({"storages": [{"path": "/s", "write": 1}]}, "storages[0].name", "missing", "the name that hints use"),
        ({"storages": [{"name": "s", "path": "/s", "write": -1}]}, "storages[0].write", "-1", "MB/s above 0"),
        (
            {"storages": [{"name": "s", "path": path, "write": 1} for path in ("/s", "/t")]},
            "storages",
            "two storages are named 's'",
            "a different name for each storage",
        ),
        (
            {"storages": [{"name": path, "path": path, "write": 1} for path in ("/s", "/s/")]},
            "storages",
            "storages '/s' and '/s/' have one path, '/s'",
            "a path, or a deployment, of its own for each storage",
        ),
        *(
            (
                {"storages": [{"name": "s", "path": "/s", "read": 1, "readers": readers}]},
                "storages[0].readers",
                f"{readers!r} is not allowed",
                "a whole number, 1 to 64",
            )
            for readers in (0, 65, 1.5, "4", "auto", True)
        ),
        (
            {"storages": [{"name": "s", "path": "/s", "read": 1, "share": "scratch"}]},
            "storages[0].share",
            "'scratch' is no absolute path",
            "mine, off, an absolute directory",
        ),
        *(
            (
                {"storages": [{"name": "s", "path": "/s", "read": 1, "scope": "node", "share": share}]},
                "storages[0]",
                "storage 's' is not shared: scope: node",
                "off",
            )
            for share in ("mine", "/ledger")
        ),
        (
            {"tls": "yes"},
            "tls",
            "'yes' is not allowed",
            "true: byte streams between hosts (SSH or an allocation) are encrypted",
        ),
        ({"retry_delay": 10**20}, "retry_delay", f"{10**20} is not allowed", "below 10^9"),
        (
            {"retry_delay": "soon"},
            "retry_delay",
            "'soon' is not allowed",
            "seconds, below 10^9, between attempts to schedule a job",
        ),
    ],
)
def test_mistakes_in_the_scheduler_config(config: dict[str, object], field: str, message: str, allowed: str) -> None:
    with pytest.raises(HintErrors) as mistakes:
        parse_scheduler_config(config, Source("streamflow.yml", lambda: {(): 5}))
    (error,) = mistakes.value.errors
    assert (error.file, error.line) == ("streamflow.yml", 5)
    assert error.field == f"scheduling.scheduler.config.{field}"
    assert message in error.message
    assert allowed in error.allowed


def test_the_runtime_of_a_feature_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamflow_io.installed_features.features", lambda: ())
    with pytest.raises(HintErrors) as mistakes:
        parse_scheduler_config({"runtime": "capio"}, Source("streamflow.yml", lambda: {("runtime",): 5}))
    assert str(mistakes.value).splitlines() == [
        "streamflow.yml:5: scheduling.scheduler.config.runtime: the feature 'capio' is not in this installation: "
        "streamflow_io/features/capio is missing; allowed: 'embedded' or 'off'"
    ]


SCRATCH = StorageConfig(name="scratch", path="/scratch", write=100, read=200)
SSD = StorageConfig(name="ssd", path="/ssd", write=300)


@pytest.mark.parametrize(
    ("hint", "field", "message", "allowed"),
    [
        ({"storageBW": 101, "storage": "scratch"}, "storageBW", "101 is above the write bandwidth", "at most 100"),
        (
            {"storageBW": "auto(1,250,2)", "storage": "scratch", "direction": "read"},
            "storageBW",
            "auto(1,250,2) is above the read bandwidth of storage 'scratch'",
            "at most 200",
        ),
        ({"storageBW": 301}, "storageBW", "301 is above the write bandwidth of storage 'ssd'", "at most 300"),
        ({"storageBW": "auto", "storage": "tape"}, "storage", "unknown storage 'tape'", "scratch, ssd"),
    ],
)
def test_bandwidths_that_no_storage_has(hint: dict[str, object], field: str, message: str, allowed: str) -> None:
    (error,) = check_storages({"/a": _step(hint), "/b": _step(hint)}, [SCRATCH, SSD])
    assert (error.file, error.line) == ("a.cwl", 7)
    assert error.field == f"sfio:StorageBandwidth.{field}"
    assert message in error.message
    assert allowed in error.allowed


@pytest.mark.parametrize(
    "hint",
    [
        {"storageBW": 100, "storage": "scratch", "direction": "both"},
        {"storageBW": 200, "storage": "scratch", "direction": "read"},
        {"storageBW": 300},
        {"storageBW": "auto", "storage": "scratch"},
    ],
)
def test_bandwidths_that_a_storage_has(hint: dict[str, object]) -> None:
    assert check_storages({"/a": _step(hint), "/b": StepAnnotations("/b")}, [SCRATCH, SSD]) == []


def test_without_storages_only_a_name_is_wrong() -> None:
    assert check_storages({"/a": _step({"storageBW": 20})}, []) == []
    (error,) = check_storages({"/a": _step({"storageBW": 20, "storage": "scratch"})}, [])
    assert "the StreamFlow file has no storages" in error.allowed


def _step(hint: dict[str, object]) -> StepAnnotations:
    source = Source("a.cwl", lambda: {(): 6, ("storageBW",): 7, ("storage",): 7})
    located = Located(StorageBandwidth.model_validate(hint), Level.TOOL, "sfio:StorageBandwidth", source)
    return StepAnnotations("/a", storage_bandwidth=located)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
rules = st.dictionaries(
    st.sampled_from([field.alias or name for name, field in StreamingRule.model_fields.items()]), json_values
)
hints = st.fixed_dictionaries(
    {"class": st.sampled_from(["sfio:IOTask", "sfio:StorageBandwidth", "sfio:Streaming", "sfio:X", "IOTask", "class"])},
    optional={"storageBW": json_values, "storage": json_values, "rules": st.lists(rules | json_values) | json_values},
)


@settings(deadline=None)
@given(hints | json_values)
def test_whatever_is_written_is_a_hint_or_a_mistake_or_not_ours(raw: object) -> None:
    hint, errors = parse_hint(raw, {"sfio": NAMESPACE}, Level.TOOL, Source("a.cwl", lambda: {(): 3}))
    assert hint is None or not errors
    assert all((error.file, error.line) == ("a.cwl", 3) and error.message and error.allowed for error in errors)
    if isinstance(raw, dict) and str(raw.get("class")).startswith("sfio:"):
        assert (hint is None) == bool(errors)


def test_each_storage_is_compared_with_its_like_only(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []
    monkeypatch.setattr("streamflow_io.hints.config.posixpath.normpath", lambda path: paths.append(path) or path)
    storages = [{"name": f"s{number}", "path": f"/{number}", "write": 1} for number in range(100)]
    SchedulerConfig.model_validate({"storages": storages})
    assert len(paths) == 100
