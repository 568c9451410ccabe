"""The template of water bodies: its scripts against plain calculations, and the same results from three runners."""

from __future__ import annotations

import random
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.workflows import StreamFlowRun
from lab.templates import WORKFLOWS, Template, check_files_differ_by_scheduler, contents

SOURCE = WORKFLOWS / "water-bodies"
SCRIPTS = SOURCE / "scripts"
JOB = "generated/small/job.yml"
WIDTH, HEIGHT = 13, 9

Rows = Sequence[Sequence[int]]


def call(script: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-S", "-E", SCRIPTS / f"{script}.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


def pgm(path: Path, rows: Rows, most: int = 65_535) -> Path:
    """Write a raster file, with a comment in its header."""
    content = b"".join(value.to_bytes(2 if most > 255 else 1, "big") for row in rows for value in row)
    path.write_bytes(b"P5 # a comment\n%d %d\n%d\n" % (len(rows[0]), len(rows), most) + content)
    return path


def pixels(content: bytes, width: int = WIDTH) -> list[list[int]]:
    """The rows of a raster with 16 bits a pixel."""
    values = array("H", content.split(b"\n65535\n", 1)[1])
    if sys.byteorder == "little":
        values.byteswap()
    return [list(values[start : start + width]) for start in range(0, len(values), width)]


@pytest.fixture
def rows() -> list[list[int]]:
    source = random.Random(1)
    return [[source.randrange(65_536) for _ in range(WIDTH)] for _ in range(HEIGHT)]


def test_crop_takes_the_area(tmp_path: Path, rows: Rows) -> None:
    cropped = call("crop", pgm(tmp_path / "band", rows), 2, 3, 5, 4)
    assert cropped.stderr == b""
    assert pixels(cropped.stdout, 5) == [list(row[2:7]) for row in rows[3:7]]


def test_the_difference_is_normalized(tmp_path: Path) -> None:
    green, infrared = pgm(tmp_path / "green", [[100, 0, 300, 0]]), pgm(tmp_path / "nir", [[100, 50, 100, 0]])
    done = call("norm_diff", green, infrared)
    # 0, -1 and 0.5; nothing is known of the last.
    assert pixels(done.stdout, 4) == [[32_767, 0, 49_151, 32_767]]


def test_smooth_takes_the_mean_of_nine_pixels(tmp_path: Path, rows: Rows) -> None:
    def mean(row: int, column: int) -> int:
        near = [
            rows[min(max(row + down, 0), HEIGHT - 1)][min(max(column + across, 0), WIDTH - 1)]
            for down in (-1, 0, 1)
            for across in (-1, 0, 1)
        ]
        return sum(near) // 9

    done = call("smooth", pgm(tmp_path / "index", rows))
    assert pixels(done.stdout) == [[mean(row, column) for column in range(WIDTH)] for row in range(HEIGHT)]


def test_otsu_separates_two_groups(tmp_path: Path) -> None:
    source = random.Random(2)
    values = [source.choice((source.gauss(15_000, 2_000), source.gauss(45_000, 2_000))) for _ in range(400)]
    done = call("otsu", pgm(tmp_path / "index", [[int(value) for value in values]]))
    assert done.stdout.split(b"\n255\n", 1)[1] == bytes(255 if value > 30_000 else 0 for value in values)


def test_lakes_are_counted_once(tmp_path: Path) -> None:
    """A body whose arms meet below is one; bodies that touch at a corner are two."""
    drawn = ["##.##....", "#...#...#", "#####..#.", "........."]
    mask = pgm(tmp_path / "mask", [[255 * (letter == "#") for letter in row] for row in drawn], 255)
    lines = call("lakes", mask, 1).stdout.decode().splitlines()
    assert lines == ["pixels\tx\ty", "11\t2.0\t1.1", "1\t8.0\t1.0", "1\t7.0\t2.0"]
    assert call("lakes", mask, 2).stdout.decode().splitlines() == lines[:2]


def test_results_are_the_same_from_three_runners(tmp_path: Path) -> None:
    check_files_differ_by_scheduler(SOURCE / "streamflow.yml", SOURCE / "streamflow-io.yml")
    template = Template.copy("water-bodies", tmp_path)
    assert template.script("generate.py", "small", "--size", 120, "--lakes", 6).returncode == 0
    (tmp_path / "plan").mkdir()
    all_stream = StreamFlowRun(template.directory / "main.cwl", {}, ["stream"] * 4, template.directory / JOB)
    all_stream.verify(tmp_path / "plan")
    plain = template.streamflow("streamflow.yml", JOB)
    assert len((plain / "lakes.tsv").read_text().splitlines()) > 3
    streaming = template.streamflow("streamflow-io.yml", JOB)
    assert contents(streaming) == contents(plain)
    assert contents(template.cwltool("main.cwl", JOB)) == contents(plain)
