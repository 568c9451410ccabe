"""Seven workflows as bioinformaticians write them, of bwa, samtools, bcftools, fastp, cutadapt and seqkit on two cores.

All cores compute for most of the time: little can be won here, and nothing may be lost. Each workflow is run plain, and
with `streamable` where its tools stream or seem to: `seqkit` asks for the size of its input, which the first run with
hints learns. It is also run with the hints that `suggest` proposes after an observed run, and with `streaming: auto`
after two runs that learn.

`busy-cores` is the first of them, with more reads.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from .auto import without_hints
from .model import Comparison
from .processes import run
from .templates import prepare_variant_calling
from .workflows import JSON, RESULT, StreamFlowRun, tool, workflow, write_workflow
from .workload import Outcome, Variant, Workload

PAIRS = 20_000
BUSY_PAIRS = 60_000
SAMPLES = 4
_TOOLS = ("bwa", "samtools", "bcftools", "fastp", "cutadapt", "seqkit")
_AT_MOST = 1.02
_PLAIN, _HINTS, _SUGGESTED, _AUTO = "plain", "hints", "suggested", "auto"

_GZIP = b"\x1f\x8b"
_INDEX = (".amb", ".ann", ".bwt", ".pac", ".sa", ".fai")
_FILE: JSON = {"type": "File", "streamable": True}
_FILES: JSON = {"type": "File[]", "streamable": True}
_WHOLE: JSON = "File"
_REFERENCE: JSON = {"type": "File", "secondaryFiles": list(_INDEX)}


@dataclass(frozen=True)
class _Document:
    """The parts of a Workflow."""

    inputs: Mapping[str, JSON]
    outputs: Mapping[str, JSON]
    steps: Mapping[str, JSON]


@dataclass(frozen=True)
class _Step:
    """A step that runs a shell command.

    :ivar command: with `$name` for the path of the input `name`
    :ivar inputs: the type of each
    :ivar sources: where each comes from
    """

    command: str
    inputs: Mapping[str, JSON]
    sources: Mapping[str, str]
    scatter: Sequence[str] = ()
    outputs: Mapping[str, JSON] | None = None
    when: str | None = None

    @property
    def document(self) -> dict[str, JSON]:
        names = {name: f"$(inputs.{name}.path)" for name in self.inputs if name != "reads"}
        if "reads" in self.inputs:
            names["reads"] = "$(inputs.reads.map(function(f) {return f.path}).join(' '))"
        runs: dict[str, JSON] = {
            "class": "CommandLineTool",
            "requirements": {
                "ResourceRequirement": {"coresMin": 1, "ramMin": 64},
                "InlineJavascriptRequirement": {},
                "EnvVarRequirement": {"envDef": names},
            },
            "baseCommand": ["sh", "-c", self.command],
            "inputs": self.inputs,
            "outputs": self.outputs or {"out": {"type": "stdout", "streamable": True}},
        }
        if self.outputs is None:
            runs |= {"stdout": "out", "stderr": "log"}  # plain StreamFlow puts both into one file
        step: dict[str, JSON] = {"run": runs, "in": dict(self.sources), "out": list(self.outputs or ("out",))}
        if self.scatter:
            step |= {"scatter": list(self.scatter), "scatterMethod": "dotproduct"}
        if self.when is not None:
            step["when"] = self.when
        return step


_SAMPLE: Mapping[str, _Step] = {
    "align": _Step(
        "bwa mem -K 1000000 $reference $one $two",
        {"reference": _REFERENCE, "one": _WHOLE, "two": _WHOLE},
        {"reference": "reference", "one": "one", "two": "two"},
    ),
    "sort": _Step("samtools sort --no-PG $sam", {"sam": _FILE}, {"sam": "align/out"}),
    "index": _Step(
        "ln -s $bam sorted.bam && samtools index sorted.bam",
        {"bam": _FILE},
        {"bam": "sort/out"},
        outputs={"out": {"type": "File", "outputBinding": {"glob": "sorted.bam.bai"}}},
    ),
    "call": _Step(
        "bcftools mpileup --no-version -f $reference $bam | bcftools call --no-version --ploidy 1 -mv",
        {"reference": _REFERENCE, "bam": _FILE, "bai": _WHOLE},
        {"reference": "reference", "bam": "sort/out", "bai": "index/out"},
    ),
}
_SAMPLES: Mapping[str, JSON] = {"reference": _REFERENCE, "ones": "File[]", "twos": "File[]"}


def _four_samples() -> _Document:
    inner = workflow(
        {"reference": _REFERENCE, "one": "File", "two": "File"},
        {"calls": {"type": "File", "outputSource": "call/out"}},
        _documents(_SAMPLE),
    )
    each: JSON = {
        "run": inner,
        "scatter": ["one", "two"],
        "scatterMethod": "dotproduct",
        "in": {"reference": "reference", "one": "ones", "two": "twos"},
        "out": ["calls"],
    }
    return _document(_SAMPLES, {"calls": ("File[]", "sample/calls")}, {"sample": each})


def _trimmed_pairs() -> _Document:
    """The trimmed pairs are fields of a record."""
    field = {name: f"{name}.fq" for name in ("one", "two")}
    pair: JSON = {
        "type": "record",
        "name": "pair",
        "fields": {
            name: {"type": "File", "streamable": True, "outputBinding": {"glob": file}} for name, file in field.items()
        },
    }
    given: JSON = {
        "type": "record",
        "name": "given",
        "fields": {name: {"type": "File", "streamable": True} for name in field},
    }
    trim = _Step(
        "fastp --thread 1 --in1 $one --in2 $two --out1 one.fq --out2 two.fq --json trim.json --html trim.html",
        {"one": _WHOLE, "two": _WHOLE},
        {"one": "ones", "two": "twos"},
        ("one", "two"),
        {"pair": {"type": pair}},
    )
    align: JSON = {
        "run": tool(
            ["bwa", "mem", "-K", "1000000"],
            {
                "reference": {"type": "File", "secondaryFiles": list(_INDEX), "inputBinding": {"position": 1}},
                "pair": {"type": given},
            },
            {"out": {"type": "stdout", "streamable": True}},
            arguments=[
                {"position": 2, "valueFrom": "$(inputs.pair.one.path)"},
                {"position": 3, "valueFrom": "$(inputs.pair.two.path)"},
            ],
            stdout="out",
            stderr="log",
        ),
        "scatter": "pair",
        "in": {"reference": "reference", "pair": "trim/pair"},
        "out": ["out"],
    }
    sort = _Step("samtools sort --no-PG $sam", {"sam": _FILE}, {"sam": "align/out"}, ("sam",))
    stats = _Step("samtools flagstat $bam", {"bam": _FILE}, {"bam": "sort/out"}, ("bam",))
    steps = {"trim": trim.document, "align": align, "sort": sort.document, "stats": stats.document}
    return _document(_SAMPLES, {"sorted": ("File[]", "sort/out"), "stats": ("File[]", "stats/out")}, steps)


def _quality_control() -> _Document:
    steps = {
        "cut": _Step("cutadapt -j 1 -q 20 -m 30 $one", {"one": _WHOLE}, {"one": "ones"}, ("one",)),
        "stats": _Step("seqkit stats -j 1 -T < $reads_of", {"reads_of": _FILE}, {"reads_of": "cut/out"}, ("reads_of",)),
        "fasta": _Step("seqkit fq2fa -j 1 $cut", {"cut": _FILE}, {"cut": "cut/out"}, ("cut",)),
        "whole": _Step("cat $reads", {"reads": _FILES}, {"reads": "fasta/out"}),
        "lengths": _Step(
            "seqkit fx2tab -j 1 -n -l $fasta | cut -f 2 | sort -n | uniq -c", {"fasta": _FILE}, {"fasta": "whole/out"}
        ),
    }
    return _document(
        _SAMPLES, {"stats": ("File[]", "stats/out"), "lengths": ("File", "lengths/out")}, _documents(steps)
    )


def _calling() -> _Document:
    bcf = "--no-version -O u"
    steps = {
        "align": replace(_SAMPLE["align"], sources={"reference": "reference", "one": "one", "two": "two"}),
        "sort": _SAMPLE["sort"],
        "pileup": _Step(
            f"bcftools mpileup {bcf} -f $reference $bam",
            {"reference": _REFERENCE, "bam": _FILE},
            {"reference": "reference", "bam": "sort/out"},
        ),
        "call": _Step(f"bcftools call {bcf} --ploidy 1 -m $bcf", {"bcf": _FILE}, {"bcf": "pileup/out"}),
        "norm": _Step(
            f"bcftools norm {bcf} -f $reference $bcf",
            {"reference": _REFERENCE, "bcf": _FILE},
            {"reference": "reference", "bcf": "call/out"},
        ),
        "filter": _Step("bcftools filter --no-version -i 'QUAL>20' $bcf", {"bcf": _FILE}, {"bcf": "norm/out"}),
        "stats": _Step("bcftools stats - < $vcf | grep -v '^#'", {"vcf": _FILE}, {"vcf": "filter/out"}),
    }
    return _document(
        {"reference": _REFERENCE, "one": "File", "two": "File"},
        {"calls": ("File", "filter/out"), "stats": ("File", "stats/out")},
        _documents(steps),
    )


def _duplicates() -> _Document:
    steps = {
        "align": _SAMPLE["align"],
        "fixmate": _Step("samtools fixmate --no-PG -m $sam -", {"sam": _FILE}, {"sam": "align/out"}),
        "sort": _Step("samtools sort --no-PG $sam", {"sam": _FILE}, {"sam": "fixmate/out"}),
        "mark": _Step("samtools markdup --no-PG $bam -", {"bam": _FILE}, {"bam": "sort/out"}),
        "stats": _Step("samtools flagstat $bam", {"bam": _FILE}, {"bam": "mark/out"}),
        "depth": _Step("samtools depth $bam", {"bam": _FILE}, {"bam": "mark/out"}),
    }
    return _document(
        {"reference": _REFERENCE, "one": "File", "two": "File"},
        {"marked": ("File", "mark/out"), "stats": ("File", "stats/out"), "depth": ("File", "depth/out")},
        _documents(steps),
    )


def _optional_trimming() -> _Document:
    """Reads are trimmed if a parameter asks for that; what was made of the two is aligned."""
    trim = replace(
        _Step("cutadapt -j 1 -q 20 $one", {"one": _WHOLE}, {"one": "one"}),
        when="$(inputs.trim)",
    ).document
    trim["in"] = {"one": "one", "trim": "trim"}
    copy = _Step("seqkit seq -j 1 $one", {"one": _WHOLE}, {"one": "one"}, when="$(inputs.keep)").document
    copy["in"] = {"one": "one", "keep": "keep"}
    align = _Step(
        "bwa mem -K 1000000 $reference $one", {"reference": _REFERENCE, "one": _FILE}, {"reference": "reference"}
    ).document
    align["in"] = {
        "reference": "reference",
        "one": {"source": ["trimmed/out", "copied/out"], "pickValue": "first_non_null"},
    }
    steps = {"trimmed": trim, "copied": copy, "align": align, "sort": _SAMPLE["sort"].document}
    choices: dict[str, JSON] = {
        name: {"type": "boolean", "default": default} for name, default in (("trim", True), ("keep", False))
    }
    inputs: Mapping[str, JSON] = {"reference": _REFERENCE, "one": "File", **choices}
    return _document(inputs, {"sorted": ("File", "sort/out")}, steps)


def _sequences() -> _Document:
    steps = {
        "whole": _Step("zcat $reads", {"reads": "File[]"}, {"reads": "ones"}),
        "filter": _Step("seqkit seq -j 1 -m 50 $fastq", {"fastq": _FILE}, {"fastq": "whole/out"}),
        "unique": _Step("seqkit rmdup -j 1 -s $fastq", {"fastq": _FILE}, {"fastq": "filter/out"}),
        "sort": _Step("seqkit sort -j 1 -s $fastq", {"fastq": _FILE}, {"fastq": "unique/out"}),
        "grep": _Step("seqkit grep -j 1 -s -p ACGTA $fastq", {"fastq": _FILE}, {"fastq": "sort/out"}),
        "table": _Step("seqkit fx2tab -j 1 -g $fastq | cut -f 1,4", {"fastq": _FILE}, {"fastq": "grep/out"}),
    }
    return _document({"ones": "File[]"}, {"table": ("File", "table/out")}, _documents(steps))


_WORKFLOWS: Mapping[str, Callable[[], _Document]] = {
    "four-samples": _four_samples,
    "trimmed-pairs": _trimmed_pairs,
    "quality-control": _quality_control,
    "calling": _calling,
    "duplicates": _duplicates,
    "optional-trimming": _optional_trimming,
    "sequences": _sequences,
}


ORDINARY_NAMES = tuple(_WORKFLOWS)


def _documents(steps: Mapping[str, _Step]) -> Mapping[str, JSON]:
    return {name: step.document for name, step in steps.items()}


def _document(
    inputs: Mapping[str, JSON], outputs: Mapping[str, tuple[str, str]], steps: Mapping[str, JSON]
) -> _Document:
    given: dict[str, JSON] = {name: {"type": kind, "outputSource": source} for name, (kind, source) in outputs.items()}
    return _Document(inputs, given, steps)


def annotated_workflows(directory: Path) -> tuple[Mapping[str, StreamFlowRun], str | None]:
    """Write the input of the seven workflows, and return their runs with hints, by name, or why they cannot run."""
    why = _obstacle()
    data = {} if why else _data(directory, PAIRS)
    return {name: _annotated(directory / name, name, data) for name in _WORKFLOWS}, why


def _obstacle() -> str | None:
    missing = ", ".join(name for name in _TOOLS if shutil.which(name) is None)
    return f"missing: {missing} (packages of Debian, of the same names)" if missing else None


def _prepare(directory: Path, names: Sequence[str], pairs: int) -> Sequence[Variant]:
    why = _obstacle()
    data = {} if why else _data(directory, pairs)
    return [replace(variant, skipped=why) for name in names for variant in _variants(directory, name, data)]


def _data(directory: Path, pairs: int) -> Mapping[str, JSON]:
    """The reads of all samples, and an indexed reference."""
    prepare_variant_calling(directory)
    source = Path(__file__).resolve().parent.parent / "workflows" / "variant-calling" / "generated"
    reference = directory / "reference.fa"
    shutil.copyfile(source / "lambda_virus.fa", reference)
    run([["bwa", "index", str(reference)], ["samtools", "faidx", str(reference)]], directory)
    reads = {end: list(_samples(directory, source / f"simulated_{end}.fq.gz", end, pairs)) for end in (1, 2)}

    def file(path: Path) -> dict[str, JSON]:
        return {"class": "File", "path": str(path)}

    return {
        "reference": {**file(reference), "secondaryFiles": [file(Path(f"{reference}{suffix}")) for suffix in _INDEX]},
        "ones": [file(path) for path in reads[1]],
        "twos": [file(path) for path in reads[2]],
        "one": file(reads[1][0]),
        "two": file(reads[2][0]),
    }


def _samples(directory: Path, source: Path, end: int, pairs: int) -> Iterator[Path]:
    with gzip.open(source) as lines:
        for number in range(SAMPLES):
            path = directory / f"sample-{number}_{end}.fq.gz"
            with gzip.open(path, "wb", compresslevel=1) as sample:
                sample.writelines(islice(lines, 4 * pairs))
            yield path


def _annotated(place: Path, name: str, data: Mapping[str, JSON]) -> StreamFlowRun:
    place.mkdir()
    document = _WORKFLOWS[name]()
    path = write_workflow(place / "main.cwl", document.inputs, document.outputs, document.steps)
    settings = place / "job.json"
    settings.write_text(
        json.dumps({key: value for key, value in data.items() if key in document.inputs}), encoding="utf-8"
    )
    return StreamFlowRun(path, {}, settings=settings, digest=_digest)


def _variants(directory: Path, name: str, data: Mapping[str, JSON]) -> Iterator[Variant]:
    place = directory / name
    annotated = _annotated(place, name, data)
    bare = replace(annotated, workflow=without_hints(place, directory / "bare") / annotated.workflow.name)
    hints = place / "suggested.yml"
    auto = {"streaming": "auto", "learned": str(place / "auto.db")}
    runs = {
        _PLAIN: replace(bare, scheduler=None),
        _HINTS: replace(annotated, scheduler={"learned": str(place / "hints.db")}),
        _SUGGESTED: replace(bare, scheduler={"annotations": str(hints)}),
        _AUTO: replace(bare, scheduler=auto),
    }

    def try_hints(run_directory: Path) -> None:
        runs[_HINTS].run(run_directory)

    def learn(run_directory: Path) -> None:
        for number in range(2):
            (nth := run_directory / f"{number}").mkdir()
            runs[_AUTO].run(nth)

    def observe(run_directory: Path) -> None:
        replace(runs[_SUGGESTED], scheduler={"observe": True}).run(run_directory)
        suggest = [sys.executable, "-m", "streamflow_io.cli", "suggest", "last", "-o", str(hints)]
        run([suggest], run_directory, {"XDG_DATA_HOME": str(run_directory / "data")})
        if not hints.exists():
            hints.write_text("steps: {}\n", encoding="utf-8")

    first = {_HINTS: try_hints, _SUGGESTED: observe, _AUTO: learn}
    for what, way in runs.items():
        yield Variant(f"{name}: {what}", named(name, way), verify=first.get(what))


def named(name: str, way: StreamFlowRun) -> Callable[[Path], Outcome]:
    """Return a function that runs a workflow, and gives its output this name."""

    def run_it(directory: Path) -> Outcome:
        outcome = way.run(directory)
        return replace(outcome, outputs={name: outcome.outputs[RESULT]})

    return run_it


def _digest(directory: Path) -> str:
    """Return a digest of all outputs, without their headers and names.

    Headers quote paths. StreamFlow numbers outputs of the same name in the order in which they arrive.
    """
    return hashlib.sha256("".join(sorted(map(_file_digest, directory.rglob("*")))).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    if not path.is_file():
        return ""
    content = path.read_bytes()
    if content.startswith(_GZIP):
        content = subprocess.run(["samtools", "view", str(path)], check=True, capture_output=True).stdout
    lines = [line for line in content.splitlines(keepends=True) if not line.startswith((b"#", b"@PG"))]
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _workload(name: str, summary: str, names: Sequence[str], pairs: int) -> Workload:
    return Workload(
        name,
        summary,
        lambda directory: _prepare(directory, names, pairs),
        [
            Comparison(
                name=f"{each}: {what} / {_PLAIN}",
                variant=f"{each}: {what}",
                baseline=f"{each}: {_PLAIN}",
                at_most=_AT_MOST,
            )
            for each in names
            for what in (_HINTS, _SUGGESTED, _AUTO)
        ],
    )


ORDINARY = _workload(
    "ordinary", "seven workflows of bwa, samtools, bcftools, fastp, cutadapt and seqkit", ORDINARY_NAMES, PAIRS
)
BUSY_CORES = _workload(
    "busy-cores", "four samples of bwa, samtools sort, index and bcftools", ("four-samples",), BUSY_PAIRS
)
