"""The template that splits: each byte is in one part, parts are whole records, and said as they are written."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.runs import Bench
from lab.templates import WORKFLOWS

PROGRAM = WORKFLOWS / "tools" / "partition.py"

FASTA = "".join(f">s{number}\n{'MK' * (number % 5)}\nA\n" for number in range(9))
FASTQ = "".join(f"@r{number}\n{'A' * number}\n+\n{'@' * number}\n" for number in range(9))
VCF = "##a\n#b\n" + "".join(f"{number}\t{'x' * (number % 4)}\n" for number in range(9))
BIG = "\n".join(map(str, range(400_000))) + "\n"


def run(directory: Path, text: str | bytes, *arguments: object, said: bool) -> tuple[list[bytes], int, str]:
    """Return the content of the parts, the exit code, and the messages on standard error."""
    directory.mkdir()
    file = directory / "whole"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    environment = {**os.environ, "SFIO_PARTS": str(directory / "said")} if said else dict(os.environ)
    command = [sys.executable, "-S", "-E", PROGRAM, file, "--names", "part-%02d", *map(str, arguments)]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return [], done.returncode, done.stderr
    names = [part["path"] for part in json.loads((directory / "cwl.output.json").read_text())["parts"]]
    assert names == [f"part-{number:02d}" for number in range(1, len(names) + 1)]
    if not said:
        return [(directory / name).read_bytes() for name in names], 0, ""
    assert not list(directory.glob("part-*"))
    lines = (directory / "said").read_text().splitlines() if names else []
    parts = {line["path"]: line["extents"] for line in map(json.loads, lines)}
    assert list(parts) == names
    content = file.read_bytes()

    def piece(said: str | list[int]) -> bytes:
        return base64.b64decode(said) if isinstance(said, str) else content[said[0] : sum(said)]

    return [b"".join(map(piece, parts[name])) for name in names], 0, ""


@pytest.mark.parametrize(
    ("text", "arguments", "count"),
    [
        (FASTA, ("--records", "fasta", "--parts", 4), 4),
        (FASTA, ("--records", "fasta", "--every", 2), 5),
        (FASTQ, ("--records", "fastq", "--every", 4), 3),
        (VCF, ("--records", "vcf", "--parts", 3), 3),
        (VCF, ("--records", "vcf", "--every", 100), 1),
        (VCF.rstrip(), ("--records", "csv", "--every", 4), 3),
        (VCF, ("--records", "lines", "--parts", 20), 20),
        (VCF, ("--records", "bytes", "--parts", 7), 7),
        (BIG, ("--records", "lines", "--chunk", 1), 3),
        (BIG, ("--records", "bytes", "--chunk", 1), 3),
        ("", ("--records", "lines", "--every", 1), 0),
        ("", ("--records", "vcf", "--parts", 2), 2),
        ("#a\n", ("--records", "vcf", "--every", 2), 0),
    ],
)
def test_all_bytes_are_in_the_parts(tmp_path: Path, text: str, arguments: tuple[object, ...], count: int) -> None:
    parts, code, _ = run(tmp_path / "written", text, *arguments, said=False)
    assert code == 0
    assert len(parts) == count
    assert parts == run(tmp_path / "said", text, *arguments, said=True)[0]
    header = {"vcf": "##a\n#b\n", "csv": "##a\n"}.get(str(arguments[1]), "").encode() if text else b""
    if parts:
        assert all(part.startswith(header) for part in parts)
        assert header + b"".join(part.removeprefix(header) for part in parts) == text.encode()
    begin = {"fasta": b">", "fastq": b"@r"}.get(str(arguments[1]), b"")
    assert all(part.startswith(begin) for part in parts)
    assert all(len(part) <= 2**20 for part in parts) or "--chunk" not in arguments


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("\x1f\x8b", ("--records", "lines", "--parts", 2), "is compressed, and not as bgzip"),
        ("\x1f\x8b", ("--records", "bytes", "--parts", 2), "is compressed: decompress it"),
        (FASTQ, ("--records", "fastq", "--parts", 2), "--parts with fastq"),
        (VCF, ("--records", "bytes", "--every", 2), "--every with bytes"),
        (VCF, ("--records", "vcf", "--every", 0), "at least 1"),
        (VCF, ("--records", "vcf", "--every", 2, "--names", "%d/%d"), "has not one %d"),
        (VCF, ("--records", "bam", "--every", 2), "invalid choice"),
    ],
)
def test_what_it_refuses(tmp_path: Path, text: str, arguments: tuple[object, ...], message: str) -> None:
    directory = tmp_path / "refused"
    directory.mkdir()
    (directory / "whole").write_bytes(text.encode("latin-1"))
    command = [sys.executable, "-S", "-E", PROGRAM, directory / "whole", "--names", "%d", *map(str, arguments)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert [path.name for path in directory.iterdir()] == ["whole"]


def bgzip(path: Path) -> Path:
    if (program := shutil.which("bgzip")) is None:
        pytest.skip("no bgzip")
    target = path.with_name(f"{path.name}.gz")
    target.write_bytes(subprocess.run([program, "-c", path], capture_output=True, check=True).stdout)
    return target


HEADER = "".join(f"##contig=<ID={number},length={number * number}>\n" for number in range(9000))


@pytest.mark.parametrize(
    "how",
    [
        ("--parts", 5),
        *(pytest.param(how, marks=pytest.mark.long) for how in (("--every", 70_000), ("--chunk", 1))),
    ],
    ids=lambda how: how[0],
)
@pytest.mark.parametrize(
    ("records", "text"),
    [("lines", BIG), ("vcf", HEADER + BIG), ("vcf", ""), ("lines", "one line")],
    ids=["lines", "header", "empty", "one"],
)
def test_what_bgzip_has_compressed(tmp_path: Path, records: str, text: str, how: tuple[str, int]) -> None:
    """The parts are those of the text, said as they are written, and each ends as a file of bgzip does."""
    (tmp_path / "whole").write_text(text)
    compressed = bgzip(tmp_path / "whole").read_bytes()
    arguments = ("--records", records, *how)
    plain, _, _ = run(tmp_path / "plain", text, *arguments, said=False)
    written, code, _ = run(tmp_path / "written", compressed, *arguments, said=False)
    assert code == 0
    assert [gzip.decompress(part) for part in written] == plain
    assert all(part.endswith(compressed[-28:]) for part in written)
    assert run(tmp_path / "said", compressed, *arguments, said=True)[0] == written
    # Blocks between two cuts are those of the file.
    if len(text) > 2**20 and how[0] != "--chunk":
        assert sum(map(len, written)) < len(compressed) + len(written) * (3 << 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: gzip.compress(b"1\n"), "is compressed, and not as bgzip does it"),
        (lambda data: data[:-40], "its last block is not whole"),
        (lambda data: data[:30] + bytes([data[30] ^ 255]) + data[31:], "its block at 0 is damaged"),
    ],
    ids=["gzip", "cut", "damaged"],
)
def test_what_is_no_file_of_bgzip(tmp_path: Path, change: Callable[[bytes], bytes], message: str) -> None:
    (tmp_path / "whole").write_text(VCF)
    data = change(bgzip(tmp_path / "whole").read_bytes())
    _, code, said = run(tmp_path / "run", data, "--records", "vcf", "--every", 2, said=False)
    assert code == 1
    assert message in said


@pytest.mark.long
def test_the_tool_with_what_bgzip_has_compressed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "calls.vcf").write_text(HEADER + BIG)
    compressed = bgzip(tmp_path / "calls.vcf")
    document, job = split_and_count("vcf", compressed, ["sh", "-c", 'gzip -dc "$0" | wc -l'])
    _, ours = bench.run_both(document, {**job, "every": 90_000, "names": "chunk-%03d.vcf.gz"})
    assert [int(content) for content in ours.files.values()] == [99_000] * 4 + [49_000]
    assert not [path for path in (bench.directory / "run2" / "tmp").rglob("chunk-*.gz") if not path.is_symlink()]


def split_and_count(records: str, file: Path, command: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A workflow that counts something in each part, and what its job says of the file."""
    reader: dict[str, Any] = {
        "class": "CommandLineTool",
        "baseCommand": command,
        "inputs": {"part": {"type": "File", "inputBinding": {"position": 1}}},
        "outputs": {"counted": "stdout"},
        "stdout": "$(inputs.part.nameroot).txt",
    }
    document = {
        "class": "Workflow",
        "requirements": [{"class": "ScatterFeatureRequirement"}],
        "inputs": {"reads": "File", "records": "string", "every": "int", "names": "string", "trace": "string"},
        "steps": {
            "split": {
                "run": str(PROGRAM.with_suffix(".cwl")),
                "in": {"whole": "reads", "records": "records", "every": "every", "names": "names"},
                "out": ["parts"],
            },
            "count": {"run": reader, "in": {"part": "split/parts"}, "scatter": "part", "out": ["counted"]},
        },
        "outputs": {"counted": {"type": "File[]", "outputSource": "count/counted"}},
    }
    return document, {"reads": {"class": "File", "path": str(file)}, "records": records}


def test_the_tool(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "reads.fq").write_text(FASTQ * 20)
    document, job = split_and_count("fastq", tmp_path / "reads.fq", ["grep", "-c", "^@r"])
    _, ours = bench.run_both(document, {**job, "every": 25, "names": "chunk-%03d.fq"})
    assert list(ours.files) == [f"chunk-00{number}.txt" for number in range(1, 9)]
    assert not [path for path in (bench.directory / "run2" / "tmp").rglob("chunk-*.fq") if not path.is_symlink()]
