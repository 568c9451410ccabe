"""The core works where the folder of a feature is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import streamflow_io
from lab.runs import Bench
from streamflow_io import features
from tests.integration.test_byte_streams import assert_streamed, chain, producer, reader

#: Each feature, and a word of `streamflow-io --help` that comes from the feature.
FEATURES = {"capio": "annotate", "cuts": "partition", "schedules": "schedule"}
_IMPORT_ALL = """
from importlib import import_module
from pkgutil import walk_packages
import streamflow_io
names = [module.name for module in walk_packages(streamflow_io.__path__, "streamflow_io.")]
for name in names:
    import_module(name)
print(streamflow_io.__file__, len(names))
"""


def test_all_features_are_deleted_in_turn() -> None:
    assert set(FEATURES) == {type(feature).__module__.split(".")[-2] for feature in features.features()}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("feature", FEATURES)
def test_the_core_works_without_a_feature(tmp_path: Path, bench: Bench, feature: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(Path(streamflow_io.__file__).parent, copy / "streamflow_io")
    shutil.rmtree(copy / "streamflow_io" / "features" / feature)
    reduced = Bench(tmp_path / "reduced", environment={"PYTHONPATH": str(copy)})

    def python(*words: str | Path) -> str:
        environment = {**os.environ, **reduced.environment, "XDG_DATA_HOME": str(tmp_path)}
        ended = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=240, cwd=tmp_path, env=environment
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    file, count = python("-c", _IMPORT_ALL).split()
    assert Path(file).parent.parent == copy
    assert int(count) > 100
    assert f"  {FEATURES[feature]} " not in python("-m", "streamflow_io.cli", "--help")
    document = chain(producer(), reader())
    path = reduced.write(document, {}, io=True)
    assert "streams" in python("-m", "streamflow_io.cli", "plan", path)
    run = reduced.finish(reduced.start(path), path)
    assert run.ok, run.errors
    assert_streamed(run)
    assert run.results == bench.run(document, io=False).results


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
