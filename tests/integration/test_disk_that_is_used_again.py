"""Workflows whose files need three times the free space, and that succeed because files or parts are removed."""

from __future__ import annotations

import shutil

from lab.cwl import Document, found, streamable, tool, workflow
from lab.disks import disk_of_a_test
from lab.runs import RETRY, Bench

MB = 1 << 20
STEPS = 8


def chain() -> Document:
    """Each step asks for the space that it writes."""
    space = [{"class": "ResourceRequirement", "outdirMin": 22, "tmpdirMin": 1}]
    write = tool(f"head -c {22 * MB} /dev/zero | tr '\\0' x", {}, {"o": "stdout"}, stdout="o.txt", requirements=space)
    copy = tool("tr x x < $i", {"i": "File"}, {"o": "stdout"}, stdout="o.txt", requirements=space)
    count = tool("wc -c < $i", {"i": "File"}, {"o": "stdout"}, stdout="count.txt", requirements=space)
    steps: dict[str, Document] = {"s0": {"run": write, "in": {}}}
    for number in range(1, STEPS):
        steps[f"s{number}"] = {"run": copy, "in": {"i": f"s{number - 1}/o"}}
    steps["last"] = {"run": count, "in": {"i": f"s{STEPS - 1}/o"}}
    return workflow({}, steps, {"count": "last/o"})


def test_a_window_on_a_file_that_is_larger_than_the_disk(bench: Bench) -> None:
    """Files are kept, so that only the window makes space."""
    space = [{"class": "ResourceRequirement", "outdirMin": 5, "tmpdirMin": 1}]
    rules = [{"port": "o", "mode": "no_update", "window": "16MB"}]
    write = tool(f"head -c {400 * MB} /dev/zero | tr '\\0' x", {}, {"o": "stdout"}, stdout="o.txt", requirements=space)
    write["hints"] = [{"class": "sfio:Streaming", "rules": rules}]
    count = tool("wc -c < $i", {"i": streamable("File")}, {"o": "stdout"}, stdout="count.txt", requirements=space)
    last = tool("cat $i", {"i": "File"}, {"o": "stdout"}, stdout="last.txt", requirements=space)
    steps = {
        "a": {"run": write, "in": {}},
        "b": {"run": count, "in": {"i": "a/o"}},
        "c": {"run": last, "in": {"i": "b/o"}},
    }
    path = bench.write(workflow({}, steps, {"count": "c/o"}), {}, io=True)
    disk = path.parent / "tmp"
    with disk_of_a_test(disk, 160 * MB, is_real=True):
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert run.files["last.txt"].split() == [str(400 * MB).encode()]


def test_a_disk_that_holds_a_third_of_all_files(bench: Bench) -> None:
    path = bench.write(chain(), {}, io=True, config={"intermediates": "remove"})
    disk = path.parent / "tmp"
    with disk_of_a_test(disk, 64 * MB, is_real=True):
        size = shutil.disk_usage(disk).free
        run = bench.finish(bench.start(path), path)
    assert size < STEPS * 22 * MB / 3
    assert run.ok, run.errors
    assert run.files["count.txt"].split() == [str(22 * MB).encode()]
    assert "SFIO-B005" not in run.log


def test_a_job_that_fails_on_a_full_disk_finds_space_when_it_is_tried_again(bench: Bench) -> None:
    """The job fails before the files are removed that no job needs any more, and is tried again at once."""
    space = [{"class": "ResourceRequirement", "outdirMin": 1, "tmpdirMin": 1}]

    def write(size: int, **inputs: str) -> Document:
        script = f"head -c {size * MB} /dev/zero"
        return tool(script, inputs, {"o": "stdout"}, stdout="o.txt", requirements=space)

    count = tool("wc -c < $i", {"i": "File"}, {"o": "stdout"}, stdout="count.txt", requirements=space)
    steps = {
        "a": {"run": write(12), "in": {}},
        "b": {"run": write(8, i="File"), "in": {"i": "a/o"}},
        "c": {"run": write(9, i="File"), "in": {"i": "b/o"}},
        "d": {"run": count, "in": {"i": "c/o"}},
    }
    config = {"intermediates": "remove"}
    path = bench.write(workflow({}, steps, {"o": "d/o"}), {}, io=True, config=config, **RETRY)
    disk = path.parent / "tmp"
    with disk_of_a_test(disk, 27 * MB):
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert run.files["count.txt"].split() == [str(9 * MB).encode()]


def test_a_job_starts_when_the_files_are_gone_that_the_job_before_has_read(bench: Bench) -> None:
    """The jobs ask for less than they write. The disk has room for the files of two of them."""
    space = [{"class": "ResourceRequirement", "outdirMin": 1, "tmpdirMin": 1}]
    write = tool(f"head -c {12 * MB} /dev/zero", {}, {"o": "stdout"}, stdout="o.txt", requirements=space)
    copy = tool("cat $i", {"i": "File"}, {"o": "stdout"}, stdout="o.txt", requirements=space)
    count = tool("wc -c < $i", {"i": "File"}, {"o": "stdout"}, stdout="count.txt", requirements=space)
    steps: dict[str, Document] = {"s0": {"run": write, "in": {}}}
    for number in range(1, STEPS):
        steps[f"s{number}"] = {"run": copy, "in": {"i": f"s{number - 1}/o"}}
    steps["last"] = {"run": count, "in": {"i": f"s{STEPS - 1}/o"}}
    document = workflow({}, steps, {"count": "last/o"})
    path = bench.write(document, {}, io=True, config={"intermediates": "remove"})
    with disk_of_a_test(path.parent / "tmp", 27 * MB):
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert run.files["count.txt"].split() == [str(12 * MB).encode()]


def test_files_with_several_names_and_with_holes(bench: Bench) -> None:
    """StreamFlow counts each name and each hole, and more than the disk has. The third job needs what is free."""
    space = [{"class": "ResourceRequirement", "outdirMin": 22, "tmpdirMin": 1}]
    script = f"head -c {20 * MB} /dev/zero | tr '\\0' x > a.txt; ln a.txt b.txt; truncate -s 300M holes.txt"
    outputs = {"a": found("a.txt"), "b": found("b.txt"), "holes": found("holes.txt")}
    copy = tool("cat $i", {"i": "File"}, {"o": "stdout"}, stdout="o.txt", requirements=space)
    inputs = {"i": "File", "b": "File", "holes": "File"}
    count = tool("cat $i $b $holes | wc -c", inputs, {"o": "stdout"}, stdout="count.txt", requirements=space)
    steps = {
        "a": {"run": tool(script, {}, outputs, requirements=space), "in": {}},
        "b": {"run": copy, "in": {"i": "a/a"}},
        "c": {"run": count, "in": {"i": "b/o", "b": "a/b", "holes": "a/holes"}},
    }
    document = workflow({}, steps, {"count": "c/o"})
    path = bench.write(document, {}, io=True, config={"intermediates": "remove"})
    disk = path.parent / "tmp"
    with disk_of_a_test(disk, 84 * MB, is_real=True):
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert run.files["count.txt"].split() == [str(340 * MB).encode()]


def test_files_with_names_in_the_directories_of_several_jobs(bench: Bench) -> None:
    """StreamFlow counts the file of each job. All of them stay until the last job, which needs what is free."""
    space = [{"class": "ResourceRequirement", "outdirMin": 22, "tmpdirMin": 1}]
    write = tool(f"head -c {20 * MB} /dev/zero | tr '\\0' x", {}, {"o": "stdout"}, stdout="o.txt", requirements=space)
    link = tool('ln "$(readlink -f $i)" o.txt', {"i": "File"}, {"o": found("o.txt")}, requirements=space)
    inputs = {"i": "File", "j": "File", "k": "File"}
    count = tool("cat $i $j $k | wc -c", inputs, {"o": "stdout"}, stdout="count.txt", requirements=space)
    steps = {
        "a": {"run": write, "in": {}},
        "b": {"run": link, "in": {"i": "a/o"}},
        "c": {"run": link, "in": {"i": "b/o"}},
        "d": {"run": count, "in": {"i": "a/o", "j": "b/o", "k": "c/o"}},
    }
    config = {"intermediates": "remove"}
    path = bench.write(workflow({}, steps, {"count": "d/o"}), {}, io=True, config=config)
    with disk_of_a_test(path.parent / "tmp", 64 * MB, is_real=True):
        run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert run.files["count.txt"].split() == [str(60 * MB).encode()]
    assert "SFIO-B005" not in run.log
    (record,) = [record for record in bench.telemetry() if record["event"] == "disk"]
    assert 20 * MB <= record["peak"] < 21 * MB
    assert 20 * MB <= record["written"] < 21 * MB
