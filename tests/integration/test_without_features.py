"""The core works where the folder of a feature is missing."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from pkgutil import walk_packages

import pytest

import streamflow_io
from lab.runs import Bench
from streamflow_io.installed_features import Feature, features
from tests.integration.test_byte_streams import assert_streamed, chain, producer, reader

FEATURES = ("capio", "cuts", "schedules")


def names(some: Iterable[Feature]) -> list[str]:
    return [type(feature).__module__.split(".")[-2] for feature in some]


def imported(copy: Path) -> tuple[str, int, list[str]]:
    """Import each module of a copy of the plugin, in a fork of this process, which has all other modules already.

    :return: where the copy is, how many modules it has, and its features
    """
    found, written = os.pipe()
    if (process := os.fork()) == 0:
        try:
            with os.fdopen(written, "wb") as said:
                for name in [name for name in sys.modules if name.partition(".")[0] == "streamflow_io"]:
                    del sys.modules[name]
                sys.path.insert(0, str(copy))
                import_module("streamflow_io")
                package = sys.modules["streamflow_io"]
                modules = [module.name for module in walk_packages(package.__path__, "streamflow_io.")]
                for name in modules:
                    import_module(name)
                with redirect_stdout(StringIO()), suppress(SystemExit):
                    sys.modules["streamflow_io.cli"].main(["--help"])
                there = names(sys.modules["streamflow_io.installed_features"].features())
                said.write(pickle.dumps((package.__file__, len(modules), there)))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(written)
    with os.fdopen(found, "rb") as result:
        content = result.read()
    os.waitpid(process, 0)
    assert content, "see standard error"
    where, count, there = pickle.loads(content)
    return where, count, there


def without(place: Path, *names: str) -> Path:
    """A directory with a copy of the plugin that lacks the folders of features."""
    left_out = shutil.ignore_patterns(*names)

    def ignore(directory: str, entries: list[str]) -> set[str]:
        return left_out(directory, entries) if Path(directory).name == "features" else set()

    shutil.copytree(Path(streamflow_io.__file__).parent, place / "streamflow_io", ignore=ignore)
    return place


def assert_a_workflow_streams(tmp_path: Path, bench: Bench, *left_out: str) -> None:
    """Run a workflow that streams with a copy of the plugin that lacks features, and compare with plain StreamFlow."""
    copy = without(tmp_path / "copy", *left_out)
    reduced = Bench(tmp_path / "reduced", environment={"PYTHONPATH": str(copy)})
    document = chain(producer(), reader())
    path = reduced.write(document, {}, io=True)
    run = reduced.finish(reduced.start(path), path)
    assert run.ok, run.errors
    assert_streamed(run)
    assert run.results == bench.run(document, io=False).results


def test_all_features_are_deleted_in_turn() -> None:
    assert list(FEATURES) == names(features())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("feature", FEATURES)
def test_all_modules_can_be_imported_without_a_feature(tmp_path: Path, feature: str) -> None:
    copy = without(tmp_path / "copy", feature)
    file, count, there = imported(copy)
    assert Path(file).parent.parent == copy
    assert count > 100
    assert there == [name for name in FEATURES if name != feature]


@pytest.mark.timeout(300)
def test_the_core_works_without_features(tmp_path: Path, bench: Bench) -> None:
    assert_a_workflow_streams(tmp_path, bench, *FEATURES)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("feature", FEATURES)
def test_a_workflow_streams_without_a_feature(tmp_path: Path, bench: Bench, feature: str) -> None:
    assert_a_workflow_streams(tmp_path, bench, feature)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("feature", FEATURES)
def test_the_unit_tests_of_the_core_pass_without_a_feature(tmp_path: Path, feature: str) -> None:
    root = Path(streamflow_io.__file__).parent.parent
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if (root / name).is_file() and f"/features/{feature}/" not in name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tmp_path / name)
    words = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", "tests/unit"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=3500)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
