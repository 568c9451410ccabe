"""The template that splits: each byte is in one part, parts are whole records, and said as they are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamflow_io.commands.validate import validate
from tests.cwl import Bench
from tests.template_support import WORKFLOWS

PROGRAM = WORKFLOWS / "tools" / "partition.py"

FASTA = "".join(f">s{number}\n{'MK' * (number % 5)}\nA\n" for number in range(9))
FASTQ = "".join(f"@r{number}\n{'A' * number}\n+\n{'@' * number}\n" for number in range(9))
VCF = "##a\n#b\n" + "".join(f"{number}\t{'x' * (number % 4)}\n" for number in range(9))
BIG = "\n".join(map(str, range(400_000))) + "\n"


def run(directory: Path, text: str, *arguments: object, said: bool) -> tuple[list[bytes], int, str]:
    """What the parts have, the exit code, and what is said on standard error."""
    directory.mkdir()
    file = directory / "whole"
    file.write_text(text)
    environment = {**os.environ, "SFIO_PARTS": str(directory / "said")} if said else dict(os.environ)
    command = [sys.executable, PROGRAM, file, "--names", "part-%02d", *map(str, arguments)]
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
    return [b"".join(content[start : start + size] for start, size in parts[name]) for name in names], 0, ""


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
        ("\x1f\x8b", ("--records", "lines", "--parts", 2), "is compressed"),
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
    command = [sys.executable, PROGRAM, directory / "whole", "--names", "%d", *map(str, arguments)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert [path.name for path in directory.iterdir()] == ["whole"]


def test_the_tool(bench: Bench, tmp_path: Path) -> None:
    assert validate(str(PROGRAM.with_suffix(".cwl"))).ok
    (tmp_path / "reads.fq").write_text(FASTQ * 20)
    reader: dict[str, Any] = {
        "class": "CommandLineTool",
        "baseCommand": ["grep", "-c", "^@r"],
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
    job = {"reads": {"class": "File", "path": str(tmp_path / "reads.fq")}, "records": "fastq", "every": 25}
    _, ours = bench.run_both(document, {**job, "names": "chunk-%03d.fq"})
    assert list(ours.files) == [f"chunk-00{number}.txt" for number in range(1, 9)]
    assert not [path for path in (bench.directory / "run2" / "tmp").rglob("chunk-*.fq") if not path.is_symlink()]
