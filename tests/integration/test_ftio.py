"""Traces are read by the real FTIO, which finds in them what `streamflow-io bandwidth` says.

`SFIO_TEST_FTIO=/where/it/is` is an environment with `ftio-hpc`; without it one is made, which takes minutes and 0.8 GB.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.once import once
from lab.telemetry import BEGIN, saving_run
from streamflow_io.bandwidth.phases import IORequest
from streamflow_io.bandwidth.tmio import trace
from streamflow_io.records.history import read_history
from streamflow_io.report.analysis.requirements import requests_of, requirements

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
MB = 1_000_000
PARSE = """
import json, sys
from ftio.parse.args import parse_args
from ftio.parse.parse_jsonl import ParseJsonl
run = ParseJsonl(sys.argv[1]).to_simrun(parse_args([], "ioplot"))
found = {name: value for name, value in vars(run.io_time).items() if name.startswith("delta_t_")}
found["required"] = max(run.write_async_b.bandwidth.b_overlap_sum)
found["reached"] = max(run.write_async_t.bandwidth.b_overlap_sum)
found["ranks"] = run.ranks
print(json.dumps(found))
"""


def install(place: Path) -> str | None:
    """Make an environment with FTIO; why that cannot be done, if so."""
    commands = ([sys.executable, "-m", "venv", str(place)], [str(place / "bin/pip"), "install", "-q", "ftio-hpc"])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode != 0:
            return f"FTIO cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    return None


@pytest.fixture(scope="module")
def ftio(common: Path) -> Path:
    """The programs of FTIO."""
    if (given := os.environ.get("SFIO_TEST_FTIO")) is not None:
        return Path(given) / "bin"
    place = common / "ftio"
    if (why := once(common / "ftio-installed", lambda: install(place))) is not None:
        pytest.skip(why)
    return place / "bin"


def run(directory: Path, *command: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=directory, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_parser_finds_the_same_numbers(ftio: Path, tmp_path: Path) -> None:
    history = read_history("saving", saving_run())
    ours = requirements(history)
    (tmp_path / "4.jsonl").write_text(trace(requests_of(history), BEGIN)[0])
    theirs = json.loads(run(tmp_path, ftio / "python", "-c", PARSE, "4.jsonl").splitlines()[-1])
    assert theirs["ranks"] == ours.channels
    assert theirs["required"] == pytest.approx(ours.most_required * MB, rel=1e-3)
    assert theirs["reached"] == pytest.approx(ours.most_throughput * MB, rel=1e-3)
    exploitation = (theirs["delta_t_awa"] - theirs["delta_t_aw_lost"]) / theirs["delta_t_agg"]
    assert exploitation == pytest.approx(ours.exploitation, rel=1e-3)
    assert theirs["delta_t_aw_lost"] == pytest.approx(ours.wait_seconds, rel=1e-3)


def test_its_plots_and_its_numbers_for_extrap(ftio: Path, tmp_path: Path) -> None:
    (tmp_path / "4.jsonl").write_text(trace(requests_of(read_history("saving", saving_run())), BEGIN)[0])
    run(tmp_path, ftio / "ioparse", "4.jsonl")
    run(tmp_path, ftio / "ioplot", "4.jsonl", "--no_disp")
    assert (tmp_path / "io_results/main.html").exists()


def test_it_finds_the_period_of_bursts(ftio: Path, tmp_path: Path) -> None:
    """Twelve bursts of four channels, 8 s apart."""
    bursts = [
        IORequest(
            job=f"/write/0.{channel}.{number}",
            step="/write",
            channel=f"/write/0.{channel}",
            phase=number,
            direction="write",
            bytes=60 * MB,
            ready=8.0 * number + 5,
            started=8.0 * number + 5,
            ended=8.0 * number + 7,
            required=8.0 * number + 5,
            rule="exposed",
        )
        for number in range(12)
        for channel in range(4)
    ]
    (tmp_path / "4.jsonl").write_text(trace(bursts, 0.0)[0])
    said = run(tmp_path, ftio / "ftio", "4.jsonl", "-m", "write_sync", "-e", "no", "-f", "10")
    found = re.search(r"Frequency:\s*(\S+) Hz", said)
    assert found is not None, said
    # Within one bin of its spectrum.
    assert abs(float(found[1]) - 1 / 8) <= 1 / (8 * 11 + 2)
