"""CAPIO-CL that others wrote is read, or refused with the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from streamflow_io.features.capio.annotate import load_capio_cl
from streamflow_io.features.capio.language.reading import read_capio_cl
from streamflow_io.graph.capio_cl.configuration import Configuration
from streamflow_io.graph.capio_cl.language import Version, write_capio_cl
from streamflow_io.hints.errors import HintErrors
from tests.unit.test_capio_cl import configurations

VERSIONS: tuple[Version, ...] = ("1.0", "1.1")


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=settings().max_examples // 3)
@given(configuration=configurations())
def test_what_is_written_is_read(version: Version, configuration: Configuration) -> None:
    document = json.loads(json.dumps(write_capio_cl(configuration, version)))
    assert read_capio_cl(document, "capio.json") == configuration


def read(text: str, tmp_path: Path) -> Configuration:
    path = tmp_path / "capio.json"
    path.write_text(text)
    return load_capio_cl(path)


def application(**fields: object) -> dict[str, object]:
    return {"name": "a", "input_stream": [], "output_stream": [], **fields}


def document(*rules: object, **fields: object) -> str:
    return json.dumps({"name": "wf", "IO_Graph": [application(streaming=list(rules))], **fields}, indent=1)


def test_what_is_left_out_is_as_capio_takes_it(tmp_path: Path) -> None:
    graph = [application(output_stream=["x", "./y", "z/"], streaming=[{"name": ["y"]}])]
    configuration = read(document(IO_Graph=graph), tmp_path)
    assert [(file.path, str(file.committed), file.mode) for file in configuration.files] == [
        ("x", "on_termination", "update"),
        ("y", "on_termination", "no_update"),
        ("z", "on_termination", "update"),
    ]


def test_groups_become_their_files(tmp_path: Path) -> None:
    aliases = [{"group_name": "g", "files": ["x", "y"]}]
    policies = {"hashing": ["g"], "manual": [{"name": ["g"], "app_node": "a"}]}
    text = document(
        {"name": ["g", "z"], "committed": "on_close", "mode": "update"},
        {"name": ["w"], "committed": "on_file", "file_deps": ["g"]},
        aliases=aliases, permanent=["g"], exclude=["z"], home_node_policies=policies, storage={"memory": ["g"]},
    )  # fmt: skip
    configuration = read(text, tmp_path)
    files = {file.path: file for file in configuration.files}
    assert {path for path, file in files.items() if str(file.committed) == "on_close"} == {"x", "y", "z"}
    assert files["w"].file_deps == ("x", "y")
    for path in ("x", "y"):
        assert files[path].permanent
        assert files[path].home_node == "a"
    assert files["z"].excluded
    assert configuration.left_out == ("storage", "home_node_policies.hashing")


@pytest.mark.parametrize(
    ("text", "line", "mistake"),
    [
        ("[]", 1, "CAPIO-CL: no JSON object; allowed: name, IO_Graph, ..."),
        ('{"name":\n', 2, "CAPIO-CL: no JSON: expected the node content, but found '<stream end>'"),
        ('{\n"name": "wf"}', 1, "IO_Graph: missing; allowed: a list of applications"),
        (document(nmae=1), 11, "nmae: unknown field; allowed: name, version, configuration, aliases, IO_Graph"),
        (document(version=1.2), 11, "version: 1.2 is no version that can be read; allowed: 1.1; or no version"),
        (document(version=True), 11, "version: True is no version that can be read"),
        (document({"name": ["x"], "mode": "append_"}), 13, "mode: 'append_' is not allowed; allowed: 'update'"),
        (document({"name": ["x"], "mode": "append"}), 13, "mode: 'append' is not allowed; allowed: 'update'"),
        (document({"name": "x"}), 10, "name: 'x' is not allowed; allowed: a list of files or groups"),
        (
            document({"name": ["x"], "batch_size": 1}),
            13,
            "batch_size: unknown field; allowed: name, dirname",
        ),
        (document({"name": ["x"], "committed": "n_files:3"}), 13, "committed: 'n_files:3' is no commit rule; allowed:"),
        (document(IO_Graph=[{"name": "a", "output_stream": []}]), 4, "input_stream: missing; allowed: a list of files"),
        (document(home_node_policy={}), 11, "home_node_policy: unknown field; allowed: home_node_policies, version"),
        (document({"name": ["x"], "committed": "on_exit"}), 13, "committed: 'on_exit' is no commit rule; allowed:"),
        (document({"name": ["x"], "committed": "on_close:0"}), 13, "committed: '0' is no number of closes"),
        (document({"name": ["x"], "committed": "on_n_files", "n_files": 2}), 9, "committed: on_n_files with name"),
        (document({"dirname": ["x"], "committed": "on_n_files"}), 9, "on_n_files needs n_files; allowed: n_files: a"),
        (document({"dirname": ["x"], "committed": "on_n_files", "n_files": 0}), 9, "on_n_files needs n_files"),
        (document({"name": ["x"], "committed": "on_file"}), 9, "committed: on_file needs file_deps; allowed:"),
        (document({"committed": "on_close"}), 9, "both or neither of name and dirname; allowed: exactly one"),
        (document({"name": ["x"], "dirname": ["x"]}), 9, "both or neither of name and dirname"),
        (document({"name": []}), 10, "name: an empty list; allowed: at least one name"),
        (document({"name": ["x"]}, {"name": ["x"], "mode": "update"}), 15, "name: a second, other rule for 'x'"),
        (document({"name": ["x"]}, {"dirname": ["x"]}), 15, "dirname: a second, other rule for 'x'"),
        (document(permanent=[""]), 12, "permanent[0]: an empty text; allowed:"),
        (
            document(home_node_policies={"manual": [{"name": ["x"], "app_node": name} for name in "ab"]}),
            19,
            "home_node_policies.manual[1]: a second home node for 'x'",
        ),
        (document(aliases=[{"group_name": "g", "files": []}] * 2), 17, "group_name: a second group 'g'"),
    ],
)
def test_mistakes_have_a_line_and_say_what_is_allowed(tmp_path: Path, text: str, line: int, mistake: str) -> None:
    with pytest.raises(HintErrors) as raised:
        read(text, tmp_path)
    assert mistake in str(raised.value)
    assert raised.value.errors[0].line == line


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HintErrors, match="CAPIO-CL: cannot be read: No such file or directory"):
        load_capio_cl(tmp_path / "missing.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(HintErrors, match="CAPIO-CL: cannot be read: it is not UTF-8"):
        load_capio_cl(tmp_path / "binary")
