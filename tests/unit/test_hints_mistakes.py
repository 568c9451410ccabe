"""Every mistake has one error, with its file, its line, its field and what is allowed.

In each document the comment `# <-` marks the line that the error must name.
"""

from pathlib import Path

import cwl_utils.parser
import pytest

from streamflow_io.hints.cwl import read_steps
from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.hints.resolution import resolve
from streamflow_io.hints.yaml_files import (
    check_annotations_file,
    read_annotations,
    read_scheduler_config,
    scheduler_config_source,
)

CLASSES = "sfio:IOTask, sfio:StorageBandwidth, sfio:Streaming, sfio:ReadSession"
COMMITTED = "on_termination, on_close, on_close:N with 1 <= N < 10^9, on_file, on_n_files"
BANDWIDTH = (
    "a number of MB/s above 0; auto, or auto(min,max,delta) with 0 < min <= max and delta > 1; required, or "
    "required(tolerance) with a number of at least 1"
)
WITHIN = "a number of seconds above 0, up to 10^9, with `storageBW: required` only"
FIELDS = "port, files, committed, fileDeps, nFiles, mode, start, permanent, window, homeNode"
NEAREST_FIRST = "fileDeps, port, files, committed, nFiles, mode, start, permanent, window, homeNode"
ONE_RULE = "one rule for each file"
NO_CYCLE = "fileDeps that do not lead back to the same files"
OUTPUTS = "outputs with files: bam, index, parts, tree"
ALL_OUTPUTS = "outputs with files: bam, index, parts, sorted, tree"
DEPS = "bam, index, parts, tree, or globs"
STEP_PATH = "a StreamFlow step path, as in /chromosome/individuals"
ENTRIES = "a list of `- class: sfio:...` entries"
PORTS = (
    "/align/bam, /align/count, /align/index, /align/level, /align/parts, /align/source, /align/tree, /sort/sorted, "
    "/sort/source"
)
STREAMABLE = "inputs and outputs, as /step/port: tools read or write them once, front to back"
DECLARATION = '$namespaces: {sfio: "urn:streamflow-io:cwl#"}'

SCHEDULER = "scheduling:\n  scheduler:\n    type: sfio.io-aware\n"
WORKFLOW = """\
cwlVersion: v1.2
class: Workflow
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
inputs: {source: File}
outputs: []
hints: []
steps:
  align:
    run: tool.cwl
    in: {source: source}
    out: []
    hints: []
  sort:
    in: {source: source}
    out: []
    run:
      class: CommandLineTool
      hints: []
      baseCommand: sort
      inputs: {source: File}
      outputs: {sorted: stdout}
"""
TOOL = """\
cwlVersion: v1.2
class: CommandLineTool
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints: []
baseCommand: align
inputs: {source: File, level: int?}
outputs:
  bam: {type: File, outputBinding: {glob: out.bam}}
  index: {type: File?, outputBinding: {glob: out.bai}}
  parts: {type: "File[]", outputBinding: {glob: "part*"}}
  tree: {type: Directory, outputBinding: {glob: tree}}
  count: {type: int, outputBinding: {glob: n, outputEval: $(1)}}
"""


def _indent(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.strip().splitlines())


def _put(document: str, hints: str, number: int = 0) -> str:
    """The document with these hints in place of its number-th `hints: []`."""
    parts = document.split("hints: []\n")
    indent = len(parts[number]) - len(parts[number].rstrip(" "))
    empty = "hints: []\n"
    return empty.join(parts[: number + 1]) + "hints:\n" + _indent(hints, indent + 2) + empty.join(parts[number + 1 :])


def _errors(directory: Path, workflow: str | None, tool: str, annotations: str | None = None) -> tuple[HintError, ...]:
    main = "tool.cwl" if workflow is None else "workflow.cwl"
    if workflow is not None:
        (directory / main).write_text(workflow)
    (directory / "tool.cwl").write_text(tool)
    if annotations is not None:
        (directory / "annotations.yml").write_text(annotations)
    document = cwl_utils.parser.load_document_by_uri(str(directory / main))
    with pytest.raises(HintErrors) as mistakes:
        resolve(read_steps(document), None if annotations is None else directory / "annotations.yml")
    for error in mistakes.value.errors:
        assert str(error) in str(mistakes.value)
    return mistakes.value.errors


def _check(error: HintError, file: Path, field: str, message: str, allowed: str) -> None:
    marked = [number for number, line in enumerate(file.read_text().splitlines(), 1) if "# <-" in line]
    assert error.file == str(file)
    assert [error.line] == marked
    assert error.field == field
    assert message in error.message
    assert error.allowed == allowed
    for part in (f"{file}:{error.line}", field, message, allowed):
        assert part in str(error)


RECORDS = "bytes, csv, fasta, fastq, lines, sam, vcf; bgzf: before one of these except bytes; or header and record"
CUTS = "one of parts, every, chunk"
ONE_NUMBER = "a name with one %d, as in chunk-%04d.fq"
OF_LINES = (
    "parts of equal bytes with records of several lines: a place in the middle does not tell where a record begins"
)
DECLARED = "port: parts, of: source, names: c%d"

RULE = "- class: sfio:Streaming\n  rules:\n  - {}  # <-"
SESSION = "- class: sfio:ReadSession\n  rules:\n  - {{{}}}  # <-"
STORAGE_BW = "- class: sfio:StorageBandwidth\n  storageBW: {}  # <-"
FIELD = "- class: sfio:StorageBandwidth\n  storageBW: {}\n  {}  # <-"
A_RULE = "a list of rules, each with at least a port"
BANDWIDTH_MISSING = f"{BANDWIDTH}; 1 MB is 10^6 bytes"
LIMITED = (
    "true: an I/O task is paused when it moves data faster than its storageBW (default: true with `required`, else "
    "false)"
)

#: A rule of `sfio:Streaming`, the field with the mistake, the message, and what is allowed.
STREAMING_RULES = [
    ("{mode: update}", "port", "missing", "an output of the step, of type File, File[], Directory or stdout"),
    ("{port: a/b}", "port", "'a/b' is no name of a port", "the name of one output, as in `port: alignments`"),
    ("{port: bma}", "port", "unknown port 'bma'", OUTPUTS),
    ("{port: count}", "port", "output 'count' is no File, File[] or Directory", OUTPUTS),
    ("{port: bam, filedeps: [index]}", "filedeps", "unknown field", NEAREST_FIRST),
    ("{port: bam, committed: onclose}", "committed", "'onclose' is no commit rule", COMMITTED),
    ("{port: bam, committed: on_close:0}", "committed", "'0' is no number of closes", COMMITTED),
    ("{port: bam, mode: noupdate}", "mode", "'noupdate' is not allowed", "'update' or 'no_update'"),
    ("{port: bam, homeNode: call}", "homeNode", "'call' is no step path", STEP_PATH),
    ("{port: bam, homeNode: /call}", "homeNode", "unknown step '/call'", "/align, /sort"),
    ("{port: parts, committed: on_n_files}", "nFiles", "committed: on_n_files needs nFiles", "a whole number from 1"),
    ("{port: parts, committed: on_n_files, nFiles: 0}", "nFiles", "nFiles is 0", "a whole number from 1, below 10^9"),
    (
        "{port: parts, nFiles: 2}",
        "nFiles",
        "nFiles with committed: on_termination",
        "nFiles with committed: on_n_files only",
    ),
    (
        "{port: bam, committed: on_n_files, nFiles: 2}",
        "nFiles",
        "output 'bam' is a single file",
        "nFiles with a Directory or File[] only",
    ),
    (
        "{port: bam, files: ['*.bam']}",
        "files",
        "output 'bam' is a single file",
        "files with a Directory or File[] only",
    ),
    (
        "{port: bam, committed: on_file}",
        "fileDeps",
        "committed: on_file needs fileDeps",
        "a list of outputs of the step, or of globs",
    ),
    (
        "{port: bam, fileDeps: [index]}",
        "fileDeps",
        "fileDeps with committed: on_termination",
        "fileDeps with committed: on_file only",
    ),
    (
        "{port: bam, committed: on_file, fileDeps: [idx]}",
        "fileDeps[0]",
        "'idx' is no output with files of this tool, and no glob",
        DEPS,
    ),
    ("{port: bam, committed: on_file, fileDeps: [count]}", "fileDeps[0]", "'count' is no output with files", DEPS),
    ("{port: bam, committed: on_file, fileDeps: [bam]}", "fileDeps", "rules wait for each other: bam -> bam", NO_CYCLE),
    (
        "{port: bam, committed: on_file, fileDeps: ['*.bam']}",
        "fileDeps",
        "rules wait for each other: bam -> bam",
        NO_CYCLE,
    ),
]
#: A rule of `sfio:ReadSession`, the field with the mistake (empty: the whole rule), the message, and what is allowed.
READ_SESSION_RULES = [
    ("port: parts", "of", "missing", "an input of type File"),
    ("of: a/b", "of", "'a/b' is no name of a port", "the name of one input, as in `of: reads`"),
    ("of: scource", "of", "unknown input 'scource'", "inputs of type File: source"),
    ("of: level", "of", "input 'level' is no File", "inputs of type File: source"),
    ("port: prts, of: source", "port", "unknown output 'prts'", "outputs of type File[]: parts"),
    ("port: bam, of: source", "port", "output 'bam' is no File[]", "outputs of type File[]: parts"),
    ("of: source, part: rnge", "part", "unknown input 'rnge'", "inputs of type value: level"),
    ("of: source, part: source", "part", "input 'source' is no value", "inputs of type value: level"),
    (f"{DECLARED}, records: bam, every: 3", "records", "unknown records 'bam'", RECORDS),
    (
        f"{DECLARED}, records: {{record: {{}}}}, every: 3",
        "records.record",
        "none of lines, begin, bytes",
        "one of lines, begin, bytes",
    ),
    (
        f"{DECLARED}, records: {{header: {{lines: 1, bytes: 2}}, record: {{lines: 1}}}}, every: 3",
        "records.header",
        "lines and bytes of prefix, lines, bytes",
        "one of prefix, lines, bytes",
    ),
    (f"{DECLARED}, records: vcf", "", "records with no cut", CUTS),
    (f"{DECLARED}, records: vcf, parts: 2, chunk: 3", "", "records with parts and chunk", CUTS),
    (f"{DECLARED}, records: bytes, every: 3", "", "every with records: bytes", "parts or chunk: bytes are no records"),
    (f"{DECLARED}, records: fastq, parts: 2", "", OF_LINES, "every or chunk"),
    (
        f"{DECLARED}, records: 'bgzf:vcf', parts: 2",
        "",
        "records: bgzf:vcf with port: each program compresses the ends of a part in its own way: "
        "nothing could be compared",
        "no records, and workflows/tools/partition.cwl",
    ),
    ("of: source, part: level, records: fastq", "", OF_LINES, "records of one line, or with begin or bytes"),
    (
        f"{DECLARED}, records: vcf, every: 0",
        "every",
        "0 is not allowed",
        "the number of records in each part: a whole number from 1",
    ),
    ("port: parts, of: source, records: vcf, every: 2", "", "records with port need names", ONE_NUMBER),
    (
        "port: parts, of: source, records: vcf, every: 2, names: 'c%d-%d'",
        "names",
        "'c%d-%d' has not one %d",
        ONE_NUMBER,
    ),
    (
        "port: parts, of: source, every: 2",
        "",
        "every without records",
        "records; or the program of the step says where it cuts",
    ),
    (
        "port: parts, of: source, part: level",
        "",
        "part with port",
        "port, if the step splits; part, if its jobs select their own part",
    ),
    (
        "of: source, part: level, every: 2",
        "",
        "every without port",
        "of, part, records and parts, if the jobs select their own part",
    ),
    ("of: source, parts: 2", "", "parts without port and part", "port, an output; or part, the input that says which"),
]
#: A `storageBW`, the message, and what is allowed.
STORAGE_BW_VALUES = [
    ("0", "0 MB/s is not above 0", BANDWIDTH),
    ("[1]", "[1] is no storage bandwidth", BANDWIDTH),
    ("required(0.9)", "'required(0.9)' is no storage bandwidth", BANDWIDTH),
    ("required(up-only,1.1)", "'required(up-only,1.1)' is no storage bandwidth", BANDWIDTH),
    (
        "required(2)",
        "is no I/O task: to pause it would delay its compute",
        "`storageBW: required` with sfio:IOTask only",
    ),
]
#: A `storageBW` and another field, the name of the field, the message, and what is allowed.
STORAGE_BW_FIELDS = [
    ("1", "direction: up", "direction", "'up' is not allowed", "'read', 'write' or 'both'"),
    ("1", "storage: ''", "storage", "an empty text", "a text that is not empty"),
    (
        "1",
        "limited: true",
        "limited",
        "is no I/O task: to pause it would delay its compute",
        "`limited` with sfio:IOTask only",
    ),
]
#: The same of an I/O task.
IO_TASK_BW_FIELDS = [
    ("required", "within: 0", "within", "within is 0", WITHIN),
    ("required", "within: .inf", "within", "within is inf", WITHIN),
    ("required", "within: .nan", "within", "within is nan", WITHIN),
    ("required", "within: soon", "within", "within is 'soon'", WITHIN),
    ("required", "within: 1e10", "within", "within is 10000000000.0", WITHIN),
    ("20", "within: 60", "within", "within with `storageBW: 20`", WITHIN),
    ("auto", "within: 60", "within", "within with `storageBW: auto`", WITHIN),
    (
        "auto",
        "limited: true",
        "limited",
        "the limit would change the learned value",
        "`limited: true` with a number, or `required`, in storageBW",
    ),
    ("1", "limited: 7", "limited", "7 is not allowed", LIMITED),
]
#: Hints, the field with the mistake, the message, and what is allowed.
HINTS = [
    ("- class: sfio:IOTsk  # <-", "class", "unknown class 'sfio:IOTsk'", CLASSES),
    ("- class: urn:streamflow-io:cwl#X  # <-", "class", "unknown class 'urn:streamflow-io:cwl#X'", CLASSES),
    ("- class: io:IOTask  # <-", "class", "'io:IOTask': the prefix 'io' is not declared in $namespaces", DECLARATION),
    ("- class: IOTask  # <-", "class", "'IOTask' has no prefix", "sfio:IOTask"),
    ("- sfio:IOTask  # <-", "hints", "'sfio:IOTask' is not written as a hint", ENTRIES),
    ("- sfio:IOTask: {}  # <-", "hints", "'sfio:IOTask' is not written as a hint", ENTRIES),
    (
        "- class: sfio:IOTask\n- class: sfio:IOTask  # <-",
        "sfio:IOTask.class",
        "a second sfio:IOTask at the same place",
        "one sfio:IOTask",
    ),
    ("- class: sfio:IOTask\n  cores: 1  # <-", "sfio:IOTask.cores", "unknown field", "class"),
    ("- class: sfio:StorageBandwidth  # <-", "sfio:StorageBandwidth.storageBW", "missing", BANDWIDTH_MISSING),
    ("- class: sfio:Streaming  # <-", "sfio:Streaming.rules", "missing", A_RULE),
    ("- class: sfio:Streaming\n  rules: []  # <-", "sfio:Streaming.rules", "[] is not allowed", A_RULE),
    (
        "- class: sfio:Streaming\n  rules:\n  - {port: bam}\n  - {port: bam, mode: no_update}  # <-",
        "sfio:Streaming.rules[1].port",
        "a second rule for all files of 'bam'",
        ONE_RULE,
    ),
    (
        "- class: sfio:Streaming\n  rules: [{port: bam}]\n- class: sfio:Streaming\n  rules: [{port: bam}]  # <-",
        "sfio:Streaming.rules[0].port",
        "a second rule for all files of 'bam'",
        ONE_RULE,
    ),
    (
        "- class: sfio:Streaming\n  rules:\n  - {port: tree, files: ['a*']}\n  - {port: tree, files: [c, '*b']}  # <-",
        "sfio:Streaming.rules[1].files",
        "'*b' and 'a*' of another rule for 'tree' match the same files",
        ONE_RULE,
    ),
    (
        "- class: sfio:Streaming\n  rules:\n  - {port: bam, committed: on_file, fileDeps: [index]}  # <-\n"
        "  - {port: index, committed: on_file, fileDeps: ['part*']}\n"
        "  - {port: parts, committed: on_file, fileDeps: [bam]}",
        "sfio:Streaming.rules[0].fileDeps",
        "rules wait for each other: bam",
        NO_CYCLE,
    ),
    (
        "- class: sfio:Streaming\n  rules:\n"
        "  - {port: parts, files: [p1.txt], committed: on_file, fileDeps: [p2.txt]}  # <-\n"
        "  - {port: parts, files: [p2.txt, p3.txt], committed: on_file, fileDeps: [p1.txt]}",
        "sfio:Streaming.rules[0].fileDeps",
        "rules wait for each other: p1.txt -> p2.txt, p3.txt -> p1.txt",
        NO_CYCLE,
    ),
    (
        "- class: sfio:ReadSession  # <-",
        "sfio:ReadSession.rules",
        "missing",
        "a list of rules, each with at least an `of`",
    ),
    (
        "- class: sfio:ReadSession\n  rules:\n  - {port: parts, of: source}\n  - {port: parts, of: source}  # <-",
        "sfio:ReadSession.rules[1].port",
        "a second rule for 'parts'",
        "one rule for each output, or input",
    ),
    (
        "- class: sfio:ReadSession\n  rules:\n  - {port: parts, of: source}  # <-\n- class: sfio:Streaming\n"
        "  rules: [{port: parts}]",
        "sfio:ReadSession.rules[0].port",
        "'parts' has a Streaming rule, too",
        "one of both: a part is complete when its place in the file is known",
    ),
]
MISTAKES_IN_A_TOOL = [
    *HINTS,
    *((STORAGE_BW.format(value), "sfio:StorageBandwidth.storageBW", *told) for value, *told in STORAGE_BW_VALUES),
    *(
        (FIELD.format(value, text), f"sfio:StorageBandwidth.{field}", *told)
        for value, text, field, *told in STORAGE_BW_FIELDS
    ),
    *(
        (f"- class: sfio:IOTask\n{FIELD.format(value, text)}", f"sfio:StorageBandwidth.{field}", *told)
        for value, text, field, *told in IO_TASK_BW_FIELDS
    ),
    *((RULE.format(rule), f"sfio:Streaming.rules[0].{field}", *told) for rule, field, *told in STREAMING_RULES),
    *(
        (SESSION.format(rule), f"sfio:ReadSession.rules[0].{field}".rstrip("."), *told)
        for rule, field, *told in READ_SESSION_RULES
    ),
]


@pytest.mark.parametrize(("hints", "field", "message", "allowed"), MISTAKES_IN_A_TOOL)
def test_mistakes_in_a_tool(tmp_path: Path, hints: str, field: str, message: str, allowed: str) -> None:
    (error,) = _errors(tmp_path, WORKFLOW if "homeNode" in hints else None, _put(TOOL, hints))
    _check(error, tmp_path / "tool.cwl", field, message, allowed)


@pytest.mark.parametrize(
    "rules",
    [
        "- {port: tree}\n  - {port: tree, files: ['a*']}\n  - {port: tree, files: ['b*']}",
        "- {port: bam, committed: on_file, fileDeps: [index]}\n  - {port: index}",
        "- {port: bam, committed: on_file, fileDeps: [done.txt, logs/end, '*.bai']}",
        "- {port: tree, files: ['*.vcf'], committed: on_file, fileDeps: ['*.vcf.tbi']}",
        "- {port: parts, committed: on_n_files, nFiles: 2, homeNode: /sort, permanent: true}",
    ],
)
def test_rules_without_mistakes(tmp_path: Path, rules: str) -> None:
    (tmp_path / "workflow.cwl").write_text(WORKFLOW)
    (tmp_path / "tool.cwl").write_text(_put(TOOL, f"- class: sfio:Streaming\n  rules:\n  {rules}"))
    steps = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(tmp_path / "workflow.cwl"))))
    assert steps["/align"].streaming


@pytest.mark.parametrize(
    ("place", "rule", "field", "message", "allowed"),
    [
        (0, "{port: x}", "port", "unknown port 'x'", ALL_OUTPUTS),
        (0, "{port: count}", "port", "output 'count' is no File, File[] or Directory", ALL_OUTPUTS),
        (1, "{port: sorted}", "port", "unknown port 'sorted'", OUTPUTS),
        (2, "{port: bam}", "port", "unknown port 'bam'", "outputs with files: sorted"),
        (
            0,
            "{port: sorted, committed: on_file, fileDeps: [index]}",
            "fileDeps[0]",
            "'index' is no output with files of step /sort, and no glob",
            "sorted, or globs",
        ),
    ],
)
def test_mistakes_at_other_levels(
    tmp_path: Path, place: int, rule: str, field: str, message: str, allowed: str
) -> None:
    (error,) = _errors(tmp_path, _put(WORKFLOW, RULE.format(rule), place), TOOL)
    _check(error, tmp_path / "workflow.cwl", f"sfio:Streaming.rules[0].{field}", message, allowed)


@pytest.mark.parametrize("port", ["bam", "sorted"])
def test_a_rule_of_a_workflow_holds_where_it_can(tmp_path: Path, port: str) -> None:
    (tmp_path / "workflow.cwl").write_text(_put(WORKFLOW, RULE.format(f"{{port: {port}}}")))
    (tmp_path / "tool.cwl").write_text(TOOL)
    steps = resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(tmp_path / "workflow.cwl"))))
    assert [path for path, step in steps.items() if step.streaming] == ["/align" if port == "bam" else "/sort"]


@pytest.mark.parametrize("name", ["a b", "Mü#ler", "50%"])
def test_the_file_of_a_mistake_has_its_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / name
    directory.mkdir()
    monkeypatch.chdir(directory)
    # The path without the `#`, which begins the name of a process.
    (tmp_path / "link").symlink_to(directory)
    (directory / "tool.cwl").write_text(_put(TOOL, "- class: sfio:IOTusk"))
    (directory / "workflow.cwl").write_text(WORKFLOW)
    with pytest.raises(HintErrors) as mistakes:
        resolve(read_steps(cwl_utils.parser.load_document_by_uri(str(tmp_path / "link" / "workflow.cwl"))))
    (error,) = mistakes.value.errors
    assert error.file == str(directory / "tool.cwl")


def test_namespaces_are_those_of_the_file(tmp_path: Path) -> None:
    lines = TOOL.replace('$namespaces: {sfio: "urn:streamflow-io:cwl#"}\n', "")
    (error,) = _errors(tmp_path, WORKFLOW, _put(lines, "- class: sfio:IOTask  # <-"))
    message = "'sfio:IOTask': the prefix 'sfio' is not declared in $namespaces"
    _check(error, tmp_path / "tool.cwl", "class", message, DECLARATION)


def test_another_namespace_with_our_prefix(tmp_path: Path) -> None:
    tool = _put(TOOL, "- class: sfio:IOTask  # <-").replace("urn:streamflow-io:cwl#", "urn:other#")
    (error,) = _errors(tmp_path, WORKFLOW, tool)
    message = "'sfio:IOTask': sfio is declared as 'urn:other#'"
    _check(error, tmp_path / "tool.cwl", "class", message, DECLARATION)


def test_all_mistakes_are_reported_once_and_in_order(tmp_path: Path) -> None:
    hints = "- class: sfio:Streaming\n  rules: [{port: x, mode: y, start: z}]\n- class: sfio:Y"
    twice = WORKFLOW.replace("  sort:\n", "  again: {run: tool.cwl, in: {source: source}, out: []}\n  sort:\n")
    errors = _errors(tmp_path, _put(twice, "- class: sfio:X"), _put(TOOL, hints))
    assert [(Path(error.file).name, error.line, error.field) for error in errors] == [
        ("tool.cwl", 6, "sfio:Streaming.rules[0].mode"),
        ("tool.cwl", 6, "sfio:Streaming.rules[0].start"),
        ("tool.cwl", 7, "class"),
        ("workflow.cwl", 7, "class"),
    ]


@pytest.mark.parametrize(
    ("annotations", "field", "message", "allowed"),
    [
        ("step:  # <-\n  /align: []", "step", "unknown field", "steps, streamable, proven"),
        ("steps:\n  /aling: []  # <-", "steps./aling", "unknown step '/aling'", "/, /align, /sort"),
        ("steps:\n  align: []  # <-", "steps.align", "'align' is no step path", "/, /align, /sort"),
        ("steps:\n  /align/: []  # <-", "steps./align/", "unknown step '/align/'", "/, /align, /sort"),
        ("steps:\n  /align: {}  # <-", "steps./align", "not a list", ENTRIES),
        ("steps:\n  /align:\n  - class: sfio:X  # <-", "class", "unknown class 'sfio:X'", CLASSES),
        ("steps:\n  /align:\n  - class: IOTask  # <-", "class", "'IOTask' has no prefix", "sfio:IOTask"),
        ("steps:\n  /align:\n  - port: bam  # <-", "steps./align[0]", "no hint", CLASSES),
        (
            "steps:\n  /align:\n  - class: sfio:Streaming\n    rules:\n    - port: bam\n      mode: x  # <-",
            "sfio:Streaming.rules[0].mode",
            "'x' is not allowed",
            "'update' or 'no_update'",
        ),
        (
            "steps:\n  /sort:\n  - class: sfio:Streaming\n    rules:\n    - port: bam  # <-",
            "sfio:Streaming.rules[0].port",
            "unknown port 'bam'",
            "outputs with files: sorted",
        ),
        (
            "streamable:\n- /align/bam\n- /align/source\n- /sort/x  # <-",
            "streamable[2]",
            "unknown port '/sort/x'",
            PORTS,
        ),
        ("streamable:\n- align/bam  # <-", "streamable[0]", "'align/bam' is no port path", PORTS),
        ("streamable:\n- 1  # <-", "streamable[0]", "1 is not allowed", "Input should be a valid string"),
        ("streamable: /align/bam  # <-", "streamable", "'/align/bam' is not allowed", STREAMABLE),
        ("- steps  # <-", "annotations", "not a mapping", "steps, streamable, proven"),
        ("steps: {  # <-", "annotations", "expected the node content", "a YAML file"),
    ],
)
def test_mistakes_in_the_annotations_file(
    tmp_path: Path, annotations: str, field: str, message: str, allowed: str
) -> None:
    (error,) = _errors(tmp_path, WORKFLOW, TOOL, annotations)
    _check(error, tmp_path / "annotations.yml", field, message, allowed)


def test_an_annotations_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HintErrors) as mistakes:
        read_annotations(tmp_path / "none.yml")
    (error,) = mistakes.value.errors
    assert error.file == str(tmp_path / "none.yml")
    assert "No such file" in error.message


@pytest.mark.parametrize("lines", [True, False])
def test_an_annotations_file_that_is_not_there_is_named_with_the_line_that_asks_for_it(
    tmp_path: Path, lines: bool
) -> None:
    streamflow_file = tmp_path / "streamflow.yml"
    if lines:
        streamflow_file.write_text(f"version: v1.0\n{SCHEDULER}    config:\n      annotations: none.yml  # <-\n")
    with pytest.raises(HintErrors) as mistakes:
        check_annotations_file(tmp_path / "none.yml", streamflow_file)
    (error,) = mistakes.value.errors
    assert (error.file, error.line) == (str(streamflow_file), 6 if lines else None)
    assert error.field == "scheduling.scheduler.config.annotations"
    assert error.message == f"'{tmp_path}/none.yml' cannot be read: No such file or directory"
    assert (
        error.allowed
        == "the path of an annotations file, relative to the StreamFlow file; or a path for each workflow, by its name"
    )
    (tmp_path / "none.yml").touch()
    check_annotations_file(tmp_path / "none.yml", streamflow_file)


@pytest.mark.parametrize("config", ["", "    config:\n"])
def test_a_scheduler_without_config(tmp_path: Path, config: str) -> None:
    file = tmp_path / "streamflow.yml"
    file.write_text(f"version: v1.0\n{SCHEDULER}{config}")
    with pytest.raises(HintErrors) as mistakes:
        read_scheduler_config(file)
    (error,) = mistakes.value.errors
    assert (error.file, error.line) == (str(file), 5 if config else 4)
    assert (error.field, error.message) == ("scheduling.scheduler.config", "missing")
    assert error.allowed.startswith("`config: {}`, or with any of annotations, storages, ")


def test_the_lines_of_the_scheduler_config_for_others(tmp_path: Path) -> None:
    file = tmp_path / "streamflow.yml"
    source = scheduler_config_source(file)
    # Read when asked: it is written after the call.
    file.write_text(f"{SCHEDULER}    config:\n      storages:\n      - {{name: s}}\n      - {{write: 100MB}}\n")
    assert (source.file, source.line("storages", 1, "write")) == (str(file), 7)
    assert source.line("runtime") == 4
    assert scheduler_config_source(tmp_path / "none.yml").line("storages") is None
    file.write_text("scheduling: {scheduler: {type: default}}\n")
    assert scheduler_config_source(file).line("storages") is None
