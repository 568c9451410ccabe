"""The variant-calling template: its scripts, and the same results from plain StreamFlow, cwltool, and over FIFOs."""

from __future__ import annotations

import gzip
import itertools
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from lab import forked
from lab.wording import uncoded
from streamflow_io.commands.plan import plan_file

TEMPLATE = Path(__file__).resolve().parents[2] / "workflows" / "variant-calling"
PAIRS = 4000
# Bases of a batch of bwa as shipped; pairs of 2 x 100 bases in a chunk here, and in a batch.
BATCH, EVERY = 10_000_000, 1000
TOOLS = ("bwa", "samtools", "bcftools", "wgsim")
STAGES = ["decompress_1", "decompress_2", "align", "fixmate", "sort", "markdup", "mpileup", "call", "filter"]

absent = [tool for tool in TOOLS if shutil.which(tool) is None]
needs_tools = pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")


def run(
    *command: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is captured."""
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def prepare(
    *arguments: object,
    script: Path = TEMPLATE / "prepare.py",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run prepare.py without installing anything; return its error message, which is empty on success."""
    result = run(sys.executable, script, "--no-install", *arguments, environment=environment)
    assert result.returncode == (2 if result.stderr else 0)
    return result.stderr


def compare(first: Path, second: Path) -> tuple[int, str]:
    """Run compare.py; return its exit code and what it says."""
    result = run(sys.executable, TEMPLATE / "compare.py", first, second)
    return result.returncode, result.stdout + result.stderr


def load(path: Path) -> Any:
    """Read a YAML document."""
    return YAML(typ="safe", pure=True).load(path)


class Execution(NamedTuple):
    """A job of a StreamFlow run."""

    step: str
    command: str
    started: int  # nanoseconds
    ended: int


class PlainRun(NamedTuple):
    """A finished plain StreamFlow run of the template as it is shipped, with fewer reads."""

    template: Path
    results: Path
    executions: Mapping[str, Execution]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the template with its input prepared."""
    copy = tmp_path_factory.mktemp("variant") / "variant-calling"
    shutil.copytree(TEMPLATE, copy, ignore=shutil.ignore_patterns("generated", "run", "__pycache__", ".*"))
    if message := prepare("--reads", PAIRS, script=copy / "prepare.py"):
        pytest.skip(message)
    shutil.copytree(TEMPLATE.parent / "tools", copy.parent / "tools")
    align = copy / "tools" / "align.cwl"
    align.write_text(align.read_text().replace(f'"{BATCH}"', f'"{200 * EVERY}"'))
    return copy


@pytest.fixture(scope="module")
def plain(template: Path) -> PlainRun:
    """The demo job, run as the README says."""
    results = template.parent / "plain"
    finished = forked.run("streamflow", "run", "streamflow.yml", "--outdir", results, cwd=template)
    assert finished.returncode == 0, finished.stderr
    with sqlite3.connect(template / "run" / "streamflow.db") as database:
        rows = database.execute(
            "SELECT step.name, cmd, start_time, end_time FROM execution JOIN step ON execution.step = step.id"
        ).fetchall()
    return PlainRun(template, results, {row[0].strip("/"): Execution(*row) for row in rows})


def bam(path: Path, header: str, *records: bytes) -> Path:
    """Write a BAM file with one reference sequence."""
    text = header.encode()
    parts = [b"BAM\1", struct.pack("<i", len(text)), text, struct.pack("<i", 1)]
    parts += [struct.pack("<i", 2), b"c\0", struct.pack("<i", 99)]
    parts += [struct.pack("<i", len(record)) + record for record in records]
    path.write_bytes(gzip.compress(b"".join(parts)))
    return path


def test_compare_bam(tmp_path: Path) -> None:
    first = bam(tmp_path / "1.bam", "@HD\tVN:1.6\n@PG\tID:bwa\tCL:/tmp/1\n", b"one", b"two")
    same = bam(tmp_path / "2.bam", "@HD\tVN:1.6\n@PG\tID:bwa\tCL:/tmp/2\n", b"one", b"two")
    assert compare(first, same)[0] == 0
    for header, records in [
        ("@HD\tVN:1.5\n", (b"one", b"two")),
        ("@HD\tVN:1.6\n", (b"one", b"twO")),
        ("@HD\tVN:1.6\n", (b"one",)),
        ("@HD\tVN:1.6\n", (b"one", b"two", b"three")),
    ]:
        code, message = compare(first, bam(tmp_path / "other.bam", header, *records))
        assert code == 1, message
        assert "other.bam" in message


def test_compare_vcf(tmp_path: Path) -> None:
    first, second = tmp_path / "1.vcf", tmp_path / "2.vcf.gz"
    header = "##fileformat=VCFv4.2\n##reference=file://{0}\n##bcftools_callCommand=call {0}\n##contig=<ID=c>\n"
    first.write_text(header.format("/a") + "c\t1\n")
    second.write_bytes(gzip.compress((header.format("/b") + "c\t1\n").encode()))
    assert compare(first, second) == (0, "identical: 1.vcf\n")
    second.write_bytes(gzip.compress((header.format("/b") + "c\t2\n").encode()))
    assert compare(first, second)[0] == 1
    second.write_bytes(gzip.compress((header.format("/b").replace("ID=c", "ID=d") + "c\t1\n").encode()))
    assert compare(first, second)[0] == 1


def test_every_file_between_the_stages_is_streamable_at_both_ends() -> None:
    workflow = load(TEMPLATE / "variant-calling.cwl")
    tools = {name: load(TEMPLATE / step["run"]) for name, step in workflow["steps"].items()}
    edges = []
    for name in STAGES:
        for port, source in workflow["steps"][name]["in"].items():
            producer, _, output = source.partition("/")
            if producer in STAGES:
                assert tools[name]["inputs"][port]["streamable"] is True, f"{name}/{port}"
                assert tools[producer]["outputs"][output]["streamable"] is True, source
                edges.append((producer, name))
    assert len(edges) == len(STAGES) - 1
    assert [producer for producer, name in edges if name == "align"] == ["decompress_1", "decompress_2"]


@pytest.fixture(scope="module")
def chunks(template: Path) -> Path:
    """The demo job for chunks.cwl."""
    job = template / "job-chunks.yml"
    job.write_text((template / "job-demo.yml").read_text() + f"every: {EVERY}\n")
    for name in ("streamflow-chunks.yml", "streamflow-io-chunks.yml"):
        file = template / name
        file.write_text(file.read_text().replace("job-demo.yml", job.name))
    return job


def in_chunks(template: Path, file: str) -> tuple[Path, str]:
    """Run chunks.cwl; return its results, and its log."""
    results = template.parent / Path(file).stem
    finished = forked.run("streamflow", "run", file, "--outdir", results, cwd=template)
    assert finished.returncode == 0, finished.stderr
    return results, finished.stdout + finished.stderr


@pytest.mark.long
@needs_tools
def test_chunks_that_nobody_writes_give_the_results_of_the_whole(plain: PlainRun, chunks: Path) -> None:
    plans = plan_file(plain.template / "streamflow-io-chunks.yml")
    (plan,) = plans.plans.values()
    # No page tells users to make the splits streamable.
    assert tuple(map(uncoded, plans.warnings["variant-calling-chunks"])) == (
        "/fixmate/fixed is `streamable`, and /cat/alignments is not: "
        "nothing streams from /fixmate/fixed to /cat/alignments",
    )
    assert plan.parts.virtual == {"/split_1/parts", "/split_2/parts"}
    assert {edge.delivery.value for edge in plan.graph.edges if edge.name.startswith("/split")} == {"part"}
    results, log = in_chunks(plain.template, "streamflow-io-chunks.yml")
    assert compare(results, plain.results) == (0, "identical: marked.bam, variants.vcf\n")
    assert "WARNING" not in log
    with sqlite3.connect(plain.template / "run" / "chunks.db") as database:
        query = "SELECT cmd FROM execution JOIN step ON execution.step = step.id WHERE step.name = '/align'"
        commands = [command for (command,) in database.execute(query)]
    assert len(commands) == PAIRS / EVERY
    assert all("chunk-" in command for command in commands)


@pytest.mark.long
@needs_tools
def test_chunks_that_are_written_give_the_results_of_the_whole(plain: PlainRun, chunks: Path) -> None:
    results, _ = in_chunks(plain.template, "streamflow-chunks.yml")
    assert compare(results, plain.results) == (0, "identical: marked.bam, variants.vcf\n")
    results = plain.template.parent / "cwltool-chunks"
    command = ("cwltool", "--quiet", "--no-container", "--outdir", results)
    finished = forked.run(*command, plain.template / "chunks.cwl", chunks)
    assert finished.returncode == 0, finished.stderr
    assert compare(results, plain.results) == (0, "identical: marked.bam, variants.vcf\n")


def test_chunks_have_the_stages_and_inputs_of_the_whole() -> None:
    whole, chunks = load(TEMPLATE / "variant-calling.cwl"), load(TEMPLATE / "chunks.cwl")
    for field in ("inputs", "outputs", "steps"):
        assert set(whole[field]) <= set(chunks[field])
    assert set(chunks["inputs"]) - set(whole["inputs"]) == {"every"}
    assert set(chunks["steps"]) - set(whole["steps"]) == {"split_1", "split_2", "cat"}
    defaults = {name: kind.get("default") for name, kind in chunks["inputs"].items()}
    assert defaults["every"] == BATCH / (2 * 100)
    assert {"prefix": "-K", "valueFrom": str(BATCH)} in load(TEMPLATE / "tools" / "align.cwl")["arguments"]
    assert all(whole["inputs"][name].get("default") == defaults[name] for name in whole["inputs"])
    for name in ("streamflow", "streamflow-io"):
        of_whole, of_chunks = load(TEMPLATE / f"{name}.yml"), load(TEMPLATE / f"{name}-chunks.yml")
        of_whole["workflows"]["variant-calling"]["config"]["file"] = "chunks.cwl"
        of_whole["database"]["config"]["connection"] = "run/chunks.db"
        assert of_chunks["workflows"].pop("variant-calling-chunks") == of_whole["workflows"].pop("variant-calling")
        assert of_chunks == of_whole


@needs_tools
@pytest.mark.parametrize("file", ["streamflow-io.yml", "streamflow-io-containers.yml"])
def test_all_stages_stream_also_in_containers(template: Path, file: str) -> None:
    (plan,) = plan_file(template / file).plans.values()
    edges = [(edge.delivery.value, edge.fallback) for edge in plan.graph.edges]
    assert edges == [("stream", None)] * (len(STAGES) - 1)


@pytest.mark.long
@needs_tools
def test_cwltool_gives_the_results_of_plain_streamflow(plain: PlainRun) -> None:
    results = plain.template.parent / "cwltool"
    command = ("cwltool", "--quiet", "--no-container", "--outdir", results)
    finished = forked.run(*command, plain.template / "variant-calling.cwl", plain.template / "job-demo.yml")
    assert finished.returncode == 0, finished.stderr
    assert compare(results, plain.results) == (0, "identical: marked.bam, variants.vcf\n")


@needs_tools
def test_the_planted_mutations_are_called(plain: PlainRun) -> None:
    truth = [line.split("\t") for line in (plain.template / "generated/simulated.truth.tsv").read_text().splitlines()]
    records = [line.split("\t") for line in (plain.results / "variants.vcf").read_text().splitlines()]
    called = [record for record in records if not record[0].startswith("#") and record[6] == "PASS"]
    planted = {(position, old, new) for _, position, old, new, _ in truth if "-" not in (old, new)}
    found = {(record[1], record[3], record[4]) for record in called if not record[7].startswith("INDEL")}
    assert len(planted) >= 40
    assert found <= planted
    assert len(found) >= 0.9 * len(planted)
    assert any(record[7].startswith("INDEL") for record in called)


def feed(path: Path, content: bytes) -> None:
    """Write `content` to a FIFO as a producer at work would: in pieces, with a pause before the first and the last."""
    cuts = [0, 1, len(content) // 3, max(len(content) - 7, 1), len(content)]
    with path.open("wb", buffering=0) as fifo:
        for begin, end in itertools.pairwise(cuts):
            fifo.write(content[begin:end])
            time.sleep(0.05)


@needs_tools
@pytest.mark.parametrize("stage", STAGES[2:])
def test_each_stage_reads_a_fifo_as_it_reads_a_file(plain: PlainRun, stage: str, tmp_path: Path) -> None:
    words = plain.executions[stage].command.replace("\\\n", " ")
    streamed = [word for word in words.split() if word.startswith("/") and not word.endswith(".fa")]
    assert len(streamed) == (2 if stage == "align" else 1)
    outputs = []
    for fifos in (False, True):
        directory = tmp_path / ("fifo" if fifos else "file")
        directory.mkdir()
        command, feeders = words, []
        for source in map(Path, streamed):
            target = directory / source.name
            if fifos:
                os.mkfifo(target)
                feeders.append(threading.Thread(target=feed, args=(target, source.read_bytes()), daemon=True))
            else:
                target.symlink_to(source)
            command = command.replace(str(source), target.name)
        for feeder in feeders:
            feeder.start()
        result = subprocess.run(command, shell=True, cwd=directory, capture_output=True, timeout=60, check=False)
        assert result.returncode == 0, result.stderr.decode()
        outputs.append(result.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 100


@needs_tools
def test_plain_streamflow_runs_one_stage_after_the_other(plain: PlainRun) -> None:
    """The run is the baseline of streaming: no stage overlaps its producer."""
    jobs = [plain.executions[stage] for stage in STAGES[2:]]
    assert all(earlier.ended <= later.started for earlier, later in itertools.pairwise(jobs))
