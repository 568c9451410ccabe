"""The hmmer template: its scripts, and the same results from three runners."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from lab.templates import (
    WORKFLOWS,
    Template,
    check_template_with_checkpoints,
    contents,
    run,
)
from streamflow_io.commands.plan import plan_file

SOURCE = WORKFLOWS / "hmmer"
FRAGMENTS = 4

needs_hmmer = pytest.mark.skipif(shutil.which("hmmsearch") is None, reason="not installed: hmmer")


def prepare(*arguments: object, script: Path = SOURCE / "prepare.py", **environment: str) -> str:
    """Run prepare.py without installing anything; return its error message, which is empty on success."""
    result = run(sys.executable, script, "--no-install", *arguments, cwd=script.parent, environment=environment)
    assert result.returncode == (2 if result.stderr else 0), result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A copy of the template with a small database."""
    copy = Template.copy("hmmer", tmp_path_factory.mktemp("hmmer"))
    size = ("--fragments", FRAGMENTS, "--fragment-size", 0.2)
    if message := prepare(*size, script=copy.directory / "prepare.py"):
        pytest.skip(message)
    return copy


@pytest.fixture(scope="module")
def plain(template: Template) -> Path:
    """The results of plain StreamFlow, run as the README says."""
    return template.streamflow("streamflow.yml")


def fasta(path: Path, lengths: list[int]) -> Path:
    """Write sequences of the given lengths, with > inside a description."""
    path.write_text("".join(f">s{number} a > b\n{'MK' * (length // 2)}\n" for number, length in enumerate(lengths)))
    return path


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("newline", ["\n", ""], ids=["whole", "without a newline at the end"])
def test_split_cuts_between_sequences(tmp_path: Path, count: int, newline: str) -> None:
    lengths = [2 + 37 * number % 50 for number in range(40)]
    database = fasta(tmp_path / "database.fa", lengths)
    database.write_text(database.read_text().rstrip("\n") + newline)
    result = run("python3", SOURCE / "scripts/split.py", database, count, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    output = json.loads((tmp_path / "cwl.output.json").read_text())
    pieces = [(tmp_path / fragment["path"]).read_bytes() for fragment in output["fragments"]]
    assert len(pieces) == count
    assert b"".join(pieces) == database.read_bytes()
    assert all(piece.startswith(b">s") for piece in pieces)
    longest = max(lengths) + len(">s99 a > b\n\n")
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 2 * longest
    assert output["targets"] == len(lengths)

    # Asked where it cuts, it says the same, and writes nothing.
    said = tmp_path / "said"
    said.mkdir()
    command = ["python3", SOURCE / "scripts/split.py", database, count]
    result = run(*command, cwd=said, environment={"SFIO_PARTS": str(said / "parts")})
    assert result.returncode == 0, result.stderr
    assert json.loads((said / "cwl.output.json").read_text()) == output
    assert {path.name for path in said.iterdir()} == {"cwl.output.json", "parts"}
    parts = [json.loads(line) for line in (said / "parts").read_text().splitlines()]
    assert [part["path"] for part in parts] == [fragment["path"] for fragment in output["fragments"]]
    content = database.read_bytes()
    assert [content[start : start + size] for part in parts for start, size in part["extents"]] == pieces


def row(target: str, model: str, e_value: str, score: str, description: str = "-") -> str:
    """A row of `hmmsearch --tblout` with three domains."""
    return f"{target} - {model} - {e_value} {score} 0.1 1 2 0 1.5 9 9 9 9 3 2 1 {description}\n"


def test_merge_sorts_by_model_and_rank(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(row("c", "m2", "1e-9", "30") + row("b", "m1", "0", "900") + row("a", "m1", "2", "5"))
    (tmp_path / "two").write_text(
        "# comment\n" + row("e", "m1", "0", "950", "two words") + row("d", "m1", "1e-10", "40")
    )
    result = run("python3", SOURCE / "scripts/merge.py", "out", "one", "two", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = [line.split("\t") for line in (tmp_path / "out").read_text().splitlines()]
    assert lines[1] == ["m1", "e", "0", "950", "0.1", "3", "two words"]
    assert [line[1] for line in lines[1:]] == ["e", "b", "d", "a", "c"]


def test_hints_and_streamflow_files() -> None:
    check_template_with_checkpoints(SOURCE, "auto", "/fragment/checkpoint")


@needs_hmmer
def test_the_planted_relatives_are_found(plain: Path) -> None:
    rows = [line.split("\t") for line in (plain / "hits.tsv").read_text().splitlines()[1:]]
    certain = [row for row in rows if float(row[2]) < 1e-6]
    assert {row[0] for row in certain} == {"globins4", "Pkinase", "fn3"}
    assert all(row[6] == f"generated {row[0]}" for row in certain)


@needs_hmmer
def test_checkpoints_have_one_size_and_hold_fragment_and_hits(template: Template, plain: Path, tmp_path: Path) -> None:
    checkpoints = sorted(plain.glob("*.tar"))
    assert len(checkpoints) == FRAGMENTS
    assert {path.stat().st_size for path in checkpoints} == {1 << 20}
    restored = b""
    hits = 0
    for path in checkpoints:
        with tarfile.open(path) as archive:
            names = archive.getnames()
            assert names == [f"{path.stem}.fa", f"{path.stem}.hits"]
            fragment, table = (archive.extractfile(name) for name in names)
            assert fragment is not None
            assert table is not None
            restored += fragment.read()
            hits += len(table.read().splitlines())
    assert restored == (template.directory / "generated/database.fa").read_bytes()
    assert hits == len((plain / "hits.tsv").read_text().splitlines()) - 1 > 0


@pytest.mark.long
@needs_hmmer
def test_cwltool_gives_the_results_of_plain_streamflow(template: Template, plain: Path) -> None:
    assert contents(template.cwltool("main.cwl", "generated/job.yml")) == contents(plain)


@needs_hmmer
def test_the_plugin_gives_the_results_of_plain_streamflow(template: Template, plain: Path) -> None:
    assert contents(template.streamflow("streamflow-io.yml")) == contents(plain)
    plan = plan_file(template.directory / "streamflow-io.yml").plans["hmmer"]
    assert [(each.name, each.is_virtual) for each in plan.parts.partitions] == [("/split/fragments", True)]
    assert template.jobs("io-aware.db") == template.jobs("plain.db")
