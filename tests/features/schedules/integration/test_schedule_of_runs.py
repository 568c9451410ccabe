"""`streamflow-io schedule simulate`, `profile` and `forecast`, on records of real runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from streamflow_io.cli import main

RECORDED = Path(__file__).parents[1] / "unit" / "recorded"
# MB/s by the number of writers: the disk of these runs.
CURVE = "1:5.5,2:11,3:13.33,4:12.31,5:11.43,6:10.67,7:10,8:9.41,12:7.62,16:6.4,32:3.9"


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded runs, by their names."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for file in RECORDED.glob("*.jsonl.gz"):
        run = tmp_path / "data" / "streamflow-io" / "runs" / file.name.removesuffix(".jsonl.gz")
        run.mkdir(parents=True)
        (run / "telemetry.jsonl").write_bytes(gzip.decompress(file.read_bytes()))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main(["schedule", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    (error,) = printed(capsys, *arguments, code=1)["errors"]
    assert isinstance(error, dict)
    return error


def test_profiles_become_a_set_that_is_scheduled_and_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, schedule = str(tmp_path / "set.json"), str(tmp_path / "schedule.json")
    assert main(["schedule", "profile", "congested-small", "congested-large", "congested-small", "-o", made]) == 0
    text = capsys.readouterr().out
    assert "Bursts on disk, write; medians:" in text
    rows = json.loads(Path(made).read_text())["applications"]
    assert [(row["name"], round(row["volume"]), row["rate"]) for row in rows] == [
        ("congested-small", 8, 4),
        ("congested-large", 64, 16),
        ("congested-small (2)", 8, 4),
    ]
    assert [row["work"] for row in rows] == pytest.approx([2, 6, 2], rel=0.05)
    printed(capsys, "compute", made, "--paper", "-o", schedule)
    found = printed(capsys, "simulate", schedule, "--noise", "0.1", "--seeds", "2", "--instances", "500")
    assert found["policies"][0]["policy"] == "slots"
    assert [len(one["runs"]) for one in found["policies"]] == [2] * 8
    assert all(0 < one["efficiency"] <= found["bounds"]["efficiency"] * 1.05 for one in found["policies"])


def test_a_forecast_is_what_the_runs_were_like(capsys: pytest.CaptureFixture[str]) -> None:
    """Four runs took at once 90, 91, 109 and 110 s, each with a ledger of its own."""
    four = ["congested-small", "congested-small", "congested-large", "congested-large"]
    found = printed(capsys, "forecast", *four, "--curve", CURVE, "--way", "own")
    together = found["scenarios"][0]
    seconds = [run["alone"] * slower for run, slower in zip(found["runs"], together["dilations"], strict=True)]
    assert seconds == pytest.approx([90.4, 90.7, 109.5, 110.1], rel=0.06)
    shared = printed(capsys, "forecast", *four, "--curve", CURVE)["scenarios"][0]
    assert shared["slowest"] < 0.8 * together["slowest"]
    assert main(["schedule", "forecast", *four]) == 0
    assert "Warning: without --curve" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("way", "seconds"),
    [
        # Two of each at once, on the disk on which the recorded ones were alone; and the same again.
        ("own", [(82.4, 82.4, 136.7, 137.3), (82.4, 82.4, 136.6, 137.0)]),
        ("turns", [(57.7, 58.8, 98.9, 91.9)]),
        ("due", [(52.8, 53.4, 83.5, 93.1)]),
    ],
)
def test_what_the_runs_have_seen_of_the_storage_corrects_its_curve(
    way: str, seconds: list[tuple[float, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the curve alone the makespans are foretold 13 to 22 % too long: the disk is faster than that."""
    four = ["alone-small", "alone-small", "alone-large", "alone-large"]
    found = printed(capsys, "forecast", *four, "--curve", CURVE, "--way", way)
    together, alone = found["scenarios"][0], [run["alone"] for run in found["runs"]]
    assert alone == pytest.approx([42.0, 42.0, 69.2, 69.2], rel=0.02)
    for measured in seconds:
        assert together["makespan"] == pytest.approx(max(measured), rel=0.10)
        slowest = max(one / own for one, own in zip(measured, (42.0, 42.0, 69.2, 69.2), strict=True))
        assert together["slowest"] == pytest.approx(slowest, rel=0.10)
    assert [(one["run"], one["jobs"], one["used"]) for one in found["seen"]] == [
        ("alone-small", 1, True),
        ("alone-large", 4, True),
    ]


def test_what_was_seen_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "forecast", "alone-large", "congested-small", "--curve", CURVE]) == 0
    text = capsys.readouterr().out
    assert (
        "The storage is taken to be as it was seen: 14.7 MB/s with 4 jobs of alone-large at once, instead of 12.3"
        in text
    )
    assert "Not used, because it is too far off: " in text
    assert "with 1 job of congested-small at once, instead of 5.5" in text


def test_the_curve_is_what_storage_probe_has_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = [point.split(":") for point in CURVE.split(",")]
    levels = [
        {"writers": int(count), "write": {"bandwidth": float(rate)}, "read": {"bandwidth": 99.0}}
        for count, rate in points
    ]
    (tmp_path / "probe.json").write_text(json.dumps({"ok": True, "levels": levels}))
    runs = ["forecast", "bursts-of-16", "chain", "--curve"]
    assert printed(capsys, *runs, str(tmp_path / "probe.json")) == printed(capsys, *runs, CURVE)


def test_a_run_that_is_not_periodic_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert mistake(capsys, "profile", "chain", "profile-search", "--storage", "disk") == {
        "file": mistake(capsys, "profile", "profile-search", "--storage", "disk")["file"],
        "line": None,
        "field": "--storage",
        "message": "no job of this run needed bandwidth of 'disk'",
        "allowed": "checkpoints",
    }
    error = mistake(capsys, "profile", "profile-search")
    assert error["message"] == (
        "run 'profile-search' is not periodic on storage 'checkpoints': 1 burst; at least 4 are needed"
    )
    error = mistake(capsys, "forecast", "chain", "kmeans")
    assert error["message"].endswith("no job of it needed bandwidth of 'disk' to write, as those of the first run")
    assert mistake(capsys, "forecast", "no-such-run")["message"] == "there is no such run"


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ("1:5,x", "'x' is no file, and no point"),
        ("1:5,2:y", "'2:y' is no point"),
        ("1:5,1:6", "1 writers are there twice"),
        ("0:5", "0:5 is not above 0"),
        ("1:inf", "1:inf is not above 0"),
        (str(RECORDED / "chain.jsonl.gz"), "this is no result of `storage probe --json`"),
    ],
)
def test_a_curve_with_a_mistake(curve: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = mistake(capsys, "forecast", "chain", "--curve", curve)
    assert (error["field"], error["message"]) == ("--curve", message)


def test_a_policy_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert mistake(capsys, "simulate", "paper:1", "--policy", "fifo")["message"] == "there is no such policy"
    error = mistake(capsys, "simulate", "paper:1", "--policy", "slots")
    assert error["message"] == "there is no such policy of a schedule file, and this is a set"


@pytest.mark.parametrize("option", [["--noise", "-1"], ["--noise", "nan"], ["--seeds", "0"], ["--instances", "1e9"]])
def test_a_number_that_is_not_allowed(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["schedule", "simulate", "paper:1", *option])
    assert f"{option[1]!r} is not allowed; allowed: " in capsys.readouterr().err


def test_a_schedule_that_cannot_be_kept_is_not_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schedule.json"
    printed(capsys, "compute", "paper:10", "--paper", "-o", str(file))
    file.write_text(file.read_text().replace('"bandwidth": 3000', '"bandwidth": 2000'))
    assert mistake(capsys, "simulate", str(file))["message"].startswith("this schedule cannot be kept: ")


def test_a_set_of_the_paper_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "simulate", "paper:10", "--policy", "fcfs", "--policy", "minmax:0.8:whole"]) == 0
    text = capsys.readouterr().out
    assert "No noise" in text
    assert "minmax:0.8:whole" in text
