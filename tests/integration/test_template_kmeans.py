"""The k-means template: its scripts against plain calculations, and the same results from three runners."""

from __future__ import annotations

import io
import json
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
