"""The script that writes checkpoints, and checkpoints.cwl of the variant-calling template."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest

from lab.templates import (
    WORKFLOWS,
    Template,
    check_checkpoint_hints,
    check_files_differ_by_scheduler,
    contents,
    import_script,
    load,
    run,
)

SOURCE = WORKFLOWS / "variant-calling"
SCRIPT = SOURCE / "scripts/checkpoint.py"
SAMPLES = ("S01", "S02")

absent = [tool for tool in ("bwa", "samtools", "bcftools", "wgsim") if shutil.which(tool) is None]
needs_tools = pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")


def test_the_templates_write_checkpoints_with_the_same_script() -> None:
    """Each template is copied alone, so each has it."""
    for name in ("hmmer", "kmeans"):
        assert (WORKFLOWS / name / "scripts/checkpoint.py").read_bytes() == SCRIPT.read_bytes()


@pytest.mark.parametrize(
    ("sizes", "multiple"), [([0], 512), ([1, 600], 1 << 20), ([3_000_000], 1 << 20), ([9], 10_240)]
)
def test_a_checkpoint_gives_the_files_back(tmp_path: Path, sizes: list[int], multiple: int) -> None:
    files = [tmp_path / f"file{number}" for number in range(len(sizes))]
    for path, size in zip(files, sizes, strict=True):
        path.write_bytes(os.urandom(size))
    for name in ("one", "two"):
        result = run("python3", SCRIPT, name, *files, "--multiple", multiple, cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        for path in files:
            os.utime(path, (1, 1))
    one = tmp_path / "one"
    assert one.stat().st_size % multiple == 0
    assert one.stat().st_size < sum(sizes) + 20_000 + multiple
    assert one.read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(one) as archive:
        restored = [archive.extractfile(member) for member in archive]
        assert [stream.read() for stream in restored if stream] == [path.read_bytes() for path in files]
    (tmp_path / "unpacked").mkdir()
    unpack = run("tar", "--extract", "--file", one, "--directory", tmp_path / "unpacked", cwd=tmp_path)
    assert (unpack.returncode, unpack.stderr) == (0, "")
    assert contents(tmp_path / "unpacked") == {path.name: path.read_bytes() for path in files}


def test_a_checkpoint_gets_its_name_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = import_script(SCRIPT)
    (tmp_path / "state").write_bytes(b"state")
    synchronised = []

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synchronised.append((path.name, path.stat().st_size if path.is_file() else None, (tmp_path / "c").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    checkpoint.write_checkpoint(tmp_path / "c", [tmp_path / "state"], 512)
    assert synchronised == [(".c.part", (tmp_path / "c").stat().st_size, False), (tmp_path.name, None, True)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["c", "absent"], "No such file"),
        (["c", "state", "below/state"], "the same name"),
        (["absent/c", "state"], "No such file"),
    ],
)
def test_a_failed_checkpoint_leaves_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "below").mkdir()
    for path in ("state", "below/state"):
        (tmp_path / path).write_bytes(b"state")
    before = sorted(tmp_path.rglob("*"))
    result = run("python3", SCRIPT, *arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def prepare_samples(copy: Template, *arguments: object) -> Path:
    """Run samples.py without installing anything; return the directory of its files."""
    result = copy.script("samples.py", "--no-install", "--samples", len(SAMPLES), *arguments)
    if result.returncode == 2:
        pytest.skip(result.stderr)
    assert result.returncode == 0, result.stderr
    return copy.directory / "generated/samples"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A copy of the template with few reads of two samples."""
    copy = Template.copy("variant-calling", tmp_path_factory.mktemp("checkpoints"))
    prepare_samples(copy, "--reads", 1000)
    return copy


@pytest.fixture(scope="module")
def plain(template: Template) -> Path:
    """The results of plain StreamFlow, run as CHECKPOINTS.md says."""
    return template.streamflow("streamflow-checkpoints.yml")


def compare(template: Template, first: Path, second: Path) -> tuple[int, str]:
    """Run compare_checkpoints.py; return its exit code and what it says."""
    result = template.script("compare_checkpoints.py", first, second)
    return result.returncode, result.stdout + result.stderr


def test_hints_and_streamflow_files() -> None:
    files = SOURCE / "streamflow-checkpoints.yml", SOURCE / "streamflow-io-checkpoints.yml"
    check_checkpoint_hints(SOURCE / "tools/checkpoint.cwl", files[1], "auto", "DockerRequirement")
    check_files_differ_by_scheduler(*files)


def test_the_stages_are_those_of_the_workflow_without_checkpoints() -> None:
    single = load(SOURCE / "variant-calling.cwl")["steps"]
    steps = {**load(SOURCE / "sample.cwl")["steps"], **load(SOURCE / "checkpoints.cwl")["steps"]}
    renamed = {"bwa_index/indexed": "reference_bwa", "faidx/indexed": "reference_fai"}
    for name, step in single.items():
        wanted = {port: renamed.get(source, source) for port, source in step["in"].items()}
        assert steps[name]["run"] == step["run"]
        assert steps[name]["in"] == wanted


@pytest.mark.long
@needs_tools
def test_the_plugin_gives_the_results_of_plain_streamflow(template: Template, plain: Path) -> None:
    results = template.streamflow("streamflow-io-checkpoints.yml")
    assert compare(template, plain, results) == (0, "identical: 11 files\n")
