"""The k-means template: its scripts against plain calculations, and the same results from three runners."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lab.templates import (
    WORKFLOWS,
    Template,
    check_template_with_checkpoints,
    contents,
    import_script,
    run,
)

SOURCE = WORKFLOWS / "kmeans"
FRAGMENTS, POINTS, DIMENSIONS, CLUSTERS, ITERATIONS = 2, 700, 5, 4, 2
JOB = "generated/small/job.yml"


def generate(template: Template, name: str, *more: object) -> Path:
    """Write a small input; return its directory."""
    sizes = ["--fragments", FRAGMENTS, "--points", POINTS, "--dimensions", DIMENSIONS, "--clusters", CLUSTERS]
    result = template.script("generate.py", name, *sizes, "--iterations", ITERATIONS, *more)
    assert result.returncode == 0, result.stderr
    return template.directory / "generated" / name


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A copy of the template with a small input."""
    copy = Template.copy("kmeans", tmp_path_factory.mktemp("kmeans"))
    generate(copy, "small")
    return copy


@pytest.fixture(scope="module")
def plain(template: Template) -> Path:
    """The results of plain StreamFlow."""
    return template.streamflow("streamflow.yml", JOB)


def test_generator_is_deterministic(tmp_path: Path) -> None:
    copy = Template.copy("kmeans", tmp_path)
    one, two, other = generate(copy, "one"), generate(copy, "two"), generate(copy, "other", "--seed", 2)
    assert contents(one) == contents(two)
    assert np.load(one / "fragment-002.npy").shape == (POINTS, DIMENSIONS)
    assert (one / "fragment-001.npy").read_bytes() != (one / "fragment-002.npy").read_bytes()
    assert (one / "fragment-001.npy").read_bytes() != (other / "fragment-001.npy").read_bytes()
    stamp = (one / "job.yml").stat().st_mtime_ns
    generate(copy, "one")
    assert (one / "job.yml").stat().st_mtime_ns == stamp


def test_generator_says_what_to_install(tmp_path: Path) -> None:
    copy = Template.copy("kmeans", tmp_path)
    result = run(sys.executable, "-S", "-E", "generate.py", cwd=copy.directory)  # -S: nothing that was installed
    assert result.returncode == 2
    assert "pip install numpy" in result.stderr
    assert not (copy.directory / "generated").exists()


@pytest.mark.parametrize("arguments", [["--points", "0"], ["a/b"], ["--fragments", "x"]])
def test_generator_refuses_bad_arguments(arguments: list[str]) -> None:
    result = run("python3", SOURCE / "generate.py", *arguments, cwd=SOURCE)
    assert result.returncode == 2
    assert "error" in result.stderr


def test_assign_finds_the_nearest_centroids() -> None:
    assign = import_script(SOURCE / "scripts/assign.py")
    random = np.random.default_rng(3)
    points, centroids = random.normal(size=(20_000, 3)).astype(np.float32), random.normal(size=(7, 3))
    sums, labels = assign.assign(points, centroids)
    distances = ((points[:, None, :].astype(float) - centroids) ** 2).sum(axis=2)
    assert (labels == distances.argmin(axis=1)).all()
    for number in range(7):
        mine = labels == number
        expected = [mine.sum(), distances[mine, number].sum(), *points[mine].astype(float).sum(axis=0)]
        assert sums[number] == pytest.approx(expected)


def test_update_leaves_a_centroid_without_points(tmp_path: Path) -> None:
    np.save(tmp_path / "old.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    (tmp_path / "old.tsv").write_text("#iteration\tinertia\tshift\n1\t9\t9\n")
    np.save(tmp_path / "a.npy", np.array([[2, 1.5, 8, 0], [0, 0, 0, 0]]))
    np.save(tmp_path / "b.npy", np.array([[2, 0.5, 0, 16], [0, 0, 0, 0]]))
    for iterations, tolerance, more in [(3, 0.1, True), (2, 0.1, False), (3, 2.3, False)]:
        arguments = ["old.npy", "old.tsv", "a.npy", "b.npy", "--iterations", iterations, "--tolerance", tolerance]
        result = run("python3", SOURCE / "scripts/update.py", *arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert np.load(tmp_path / "centroids.npy").tolist() == [[2.0, 4.0], [3.0, 4.0]]
        assert (tmp_path / "history.tsv").read_text().splitlines()[-1] == "2\t2\t2.23607"
        assert json.loads((tmp_path / "cwl.output.json").read_text())["more"] is more


def test_start_chooses_different_points(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.repeat(np.arange(12.0).reshape(4, 3), 50, axis=0))
    for clusters, code in [(4, 0), (5, 1)]:
        arguments = ["out.npy", "history.tsv", "points.npy", "--clusters", clusters, "--seed", 1]
        result = run("python3", SOURCE / "scripts/start.py", *arguments, cwd=tmp_path)
        assert result.returncode == code, result.stderr
    assert result.stderr == "start.py: fewer than 5 different points in the sample\n"
    assert sorted(np.load(tmp_path / "out.npy").tolist()) == np.arange(12.0).reshape(4, 3).tolist()


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("assign", ["flat.npy", "table.npy", "s", "l"], "shape"),
        ("assign", ["text", "table.npy", "s", "l"], "text"),
        ("start", ["o", "h", "flat.npy", "--clusters", "1", "--seed", "1"], "not a table of points"),
        ("update", ["absent", "text", "table.npy", "--iterations", "1", "--tolerance", "0"], "absent"),
    ],
)
def test_bad_input_is_one_message(tmp_path: Path, script: str, arguments: list[str], message: str) -> None:
    np.save(tmp_path / "flat.npy", np.zeros(3))
    np.save(tmp_path / "table.npy", np.zeros((3, 2)))
    (tmp_path / "text").write_text("text")
    result = run("python3", SOURCE / f"scripts/{script}.py", *arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_hints_and_streamflow_files() -> None:
    check_template_with_checkpoints(SOURCE, "auto(2,64,2)", "/iteration/fragment/checkpoint")


@pytest.mark.long
def test_the_result_is_that_of_lloyds_algorithm(template: Template, plain: Path, tmp_path: Path) -> None:
    inputs = sorted((template.directory / "generated/small").glob("fragment-*.npy"))
    arguments = [tmp_path / "first.npy", tmp_path / "h", *inputs, "--clusters", CLUSTERS, "--seed", 1]
    assert run("python3", SOURCE / "scripts/start.py", *arguments, cwd=tmp_path).returncode == 0
    centroids = np.load(tmp_path / "first.npy")
    points = np.concatenate([np.load(path) for path in inputs]).astype(float)
    inertias = []
    for _ in range(ITERATIONS):
        distances = ((points[:, None, :] - centroids) ** 2).sum(axis=2)
        labels = distances.argmin(axis=1)
        inertias.append(distances.min(axis=1).sum())
        centroids = np.array([points[labels == number].mean(axis=0) for number in range(CLUSTERS)])
    assert np.load(plain / "centroids.npy") == pytest.approx(centroids)
    history = [line.split("\t") for line in (plain / "history.tsv").read_text().splitlines()[1:]]
    assert [int(row[0]) for row in history] == [*range(1, ITERATIONS + 1)]
    assert [float(row[1]) for row in history] == pytest.approx(inertias)

    checkpoints = sorted(plain.glob("*.tar"))
    assert len({path.stat().st_size for path in checkpoints}) == 1
    restored = []
    for source, checkpoint in zip(inputs, checkpoints, strict=True):
        with tarfile.open(checkpoint) as archive:
            fragment, labelled = (archive.extractfile(member) for member in archive)
            assert fragment is not None
            assert labelled is not None
            assert fragment.read() == source.read_bytes()
            restored.append(np.load(io.BytesIO(labelled.read())))
    assert (np.concatenate(restored) == labels).all()


@pytest.mark.long
def test_cwltool_gives_the_results_of_plain_streamflow(template: Template, plain: Path) -> None:
    assert contents(template.cwltool("--enable-ext", "main.cwl", JOB)) == contents(plain)


@pytest.mark.long
def test_the_plugin_gives_the_results_of_plain_streamflow(template: Template, plain: Path) -> None:
    assert contents(template.streamflow("streamflow-io.yml", JOB)) == contents(plain)
    assert template.jobs("io-aware.db") == template.jobs("plain.db")
