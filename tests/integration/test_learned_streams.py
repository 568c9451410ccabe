"""`streaming: auto`: what was proven streams without a hint, with the results of plain StreamFlow, and never fails."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab.cwl import Document, found, tool, workflow
from lab.gates import MEET
from lab.runs import Bench, Run
from streamflow_io.cli import main
from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.plan_proofs import prospects
from streamflow_io.graph.candidates import Candidate
from streamflow_io.hints.errors import HintErrors
from streamflow_io.jobs.proof_key import proof_key
from streamflow_io.records.learned.extents import UNBOUNDED, Extent, Extents
from streamflow_io.records.learned.proofs import Proof, ProofKey, RememberedProofs, TriedBeside, Way, known_proofs
from tests.campaign.verdict import clear_error
from tests.integration.test_byte_streams import assert_streamed, slow

AUTO = {"streaming": "auto", "rehearse": "never"}
READ = 'note read; while read line; do note read $line; echo "$line"; done < $file'


def producer(script: str = slow("out.txt"), glob: str = "out.txt", kind: str = "File") -> Document:
    return tool(script, {}, {"out": found(glob, kind)})


def reader(script: str = READ, kind: str = "File") -> Document:
    return tool(script, {"file": kind}, {"out": "stdout"}, stdout="read.txt")


def chain(first: Document, second: Document) -> Document:
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"b": "b/out"})


def written(name: str = "out.txt") -> Document:
    return {"class": "File", "basename": name}


class Proving:
    """Runs workflows with proofs from earlier runs."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._plain: dict[str, Run] = {}

    @property
    def store(self) -> Path:
        return self.bench.data / "streamflow-io" / "learned.db"

    def prove(
        self,
        path: Path,
        ways: Mapping[tuple[str, str], Way],
        excerpt: int | None = None,
        extents: Extents = UNBOUNDED,
        beside: tuple[TriedBeside, ...] = (),
        **inputs: Any,
    ) -> None:
        candidates = plan_file(path).plans["main"].proofs.candidates
        values = {"file": written(), "trace": str(path.parent / "trace"), **inputs}

        proofs = []
        for (step, port), way in ways.items():
            key = proof_key(candidates[step], port, values, sees_files=True)
            assert key is not None
            proofs.append(Proof(key, step, 0.0, way, excerpt=excerpt, extents=extents, beside=beside))
        asyncio.run(self.remember(*proofs))

    async def remember(self, *proofs: Proof) -> None:
        remembered = RememberedProofs(self.store, ())
        for proof in proofs:
            await remembered.remember(proof)
        await remembered.close()

    def run_both(
        self,
        document: Document,
        way: Way | None = "net",
        config: Mapping[str, Any] = AUTO,
        alone: bool = False,
        **inputs: Any,
    ) -> tuple[Run, Run]:
        """Run a workflow with plain StreamFlow, and with ours, where `/b` is proven to read `file` as a stream.

        Plain StreamFlow runs a workflow only once.

        :param alone: nothing streams, and a producer does not wait for its reader
        """
        paths = [self.bench.write(document, {}, io=True, config=config)]
        if alone:
            paths[0].with_name("trace.alone").touch()
        if way is not None:
            self.prove(paths[0], {("/b", "file"): way}, **inputs)
        text = json.dumps(document)
        if text not in self._plain:
            paths.append(self.bench.write_plain(document, {}))
        ours, *others = self.bench.run_all(paths)
        plain = self._plain[text] = others[0] if others else self._plain[text]
        assert plain.ok, plain.errors
        assert ours.ok, ours.errors
        assert ours.results == plain.results
        assert self.bench.leftovers() == []
        return plain, ours

    def known(self) -> list[tuple[str, str, str | None, int]]:
        """Return the proofs: step, port, reason why not, and jobs that have streamed."""
        return [(proof.step, proof.key.port, proof.reason, proof.runs) for proof in known_proofs(self.store)]


@pytest.fixture
def proving(bench: Bench) -> Proving:
    return Proving(bench)


@pytest.mark.parametrize("way", ["net", pytest.param("pipe", marks=pytest.mark.long)])
def test_what_is_proven_is_read_while_it_is_written(proving: Proving, way: Way) -> None:
    plain, ours = proving.run_both(chain(producer(slow("out.txt")), reader()), way)
    assert plain.time("read") > plain.time("end")
    assert_streamed(ours)
    assert proving.known() == [("/b", "file", None, 1)]
    assert " WARNING " not in ours.log
    assert ours.log.count("/b reads /a/out while it is written") == 1


_LOOKS = """
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
try:
    print(os.lseek(f, 0, 2))
except OSError:
    print("a pipe")
os.read(f, 2)
os.write(os.open(os.environ["TRACE"], os.O_WRONLY | os.O_APPEND), b"0 looked\\n")
print(os.lseek(f, 0, 2))
"""


def test_what_first_bytes_have_proven_is_a_pipe_up_to_there(proving: Proving) -> None:
    looks = tool(f"{sys.executable} -ISc '{_LOOKS}' $file", {"file": "File"}, {"out": "stdout"}, stdout="read.txt")
    document = chain(producer(slow("out.txt", read="looked")), looks)
    path = proving.bench.write(document, {}, io=True, config=AUTO)
    proving.prove(path, {("/b", "file"): "pipe"}, excerpt=2)
    [ours] = proving.bench.run_all([path])
    assert ours.ok, ours.errors
    size = proving.bench.run_all([proving.bench.write_plain(document, {})])[0].files["read.txt"].split()
    assert ours.files["read.txt"].split(b"\n") == [b"a pipe", size[0], b""]


def test_no_more_is_fed_than_was_proven(proving: Proving) -> None:
    """The reader gets what was proven while the file is written, and all of it when that is final."""
    first = producer(slow("out.txt"))
    plain, ours = proving.run_both(chain(first, reader()), extents=(Extent(7, 10**6),))
    assert ours.times("read")[0] < ours.time("end") < ours.times("read")[-1]
    assert len(ours.times("read")) > len(plain.times("read"))
    assert "reads the complete file: /b/file is proven for the first 7 B, and the job asks for more" in ours.log
    assert " WARNING " not in ours.log
    assert proving.known() == [("/b", "file", None, 0)]


def test_a_reader_of_the_first_bytes_goes_on_when_the_file_is_final(proving: Proving) -> None:
    """The reader works for longer than its producer, has the file open, and asks for no more."""
    wait = 'until grep -q " end$" "$TRACE"; do sleep 0.1; done; sleep 0.5'
    first = reader(f'exec < "$file"; head -c 7; note read; {wait}; note done')
    _, ours = proving.run_both(chain(producer(slow("out.txt", read=" read$")), first), extents=(Extent(7, 10**6),))
    assert len(ours.times("read")) == len(ours.times("done")) == 1
    assert ours.time("read") < ours.time("end")
    assert "reads the complete file" not in ours.log


@pytest.mark.parametrize("changes", [False, True])
def test_a_proof_holds_for_the_same_scripts_in_a_directory(proving: Proving, tmp_path: Path, changes: bool) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "run.sh"
    script.write_text(READ.replace("< $file", ""))
    second = tool(". $scripts/run.sh < $file", {"file": "File", "scripts": "Directory"}, {"out": "stdout"})
    steps = {"a": {"run": producer(), "in": {}}, "b": {"run": second, "in": {"file": "a/out", "scripts": "scripts"}}}
    scripts = {"class": "Directory", "path": str(script.parent)}
    document = workflow({"scripts": "Directory"}, steps, {"b": "b/out"})
    path = proving.bench.write(document, {"scripts": scripts}, io=True, config=AUTO)
    proving.prove(path, {("/b", "file"): "net"}, scripts={**scripts, "basename": "scripts"})
    if changes:
        script.write_text(f"# another script\n{script.read_text()}")
        path.with_name("trace.alone").touch()
    [ours] = proving.bench.run_all([path])
    assert ours.ok, ours.errors
    assert (ours.time("read line 1") > ours.time("end")) is changes


_ONCE = "print(f.read())"
_ASKS = "import os, stat\nprint(stat.S_ISFIFO(os.fstat(f.fileno()).st_mode), f.read())"


def test_a_script_of_an_earlier_step_that_has_changed_needs_another_proof(bench: Bench, tmp_path: Path) -> None:
    """The tools are the same in all runs: the first step makes the script out of its input.

    The file is written until its reader has begun, where the reader is to begin before.
    """
    meets, begun = tmp_path / "meets", tmp_path / "begun"
    wait = f"while [ -e {meets} ] && [ ! -e {begun} ]; do sleep 0.1; done"
    writes = tool("cat $code > run.py", {"code": "File"}, {"script": found("run.py")})
    read = f'touch {begun}; {sys.executable} -IS "$script" "$file"'
    runs = tool(read, {"script": "File", "file": "File"}, {"out": "stdout"})
    runs["stdout"] = "read.txt"
    steps = {
        "w": {"run": writes, "in": {"code": "code"}},
        "a": {"run": producer(f"seq 3000 > out.txt; sleep 1; {wait}; note end"), "in": {}},
        "b": {"run": runs, "in": {"script": "w/script", "file": "a/out"}},
    }
    document = workflow({"code": "File"}, steps, {"b": "b/out"})
    code = tmp_path / "code.txt"
    job = {"code": {"class": "File", "path": str(code)}, "trace": "/dev/null"}
    reads = "/b reads /a/out while it is written"

    def run(script: str, *, is_both: bool = False) -> Run:
        code.write_text(f"import sys\nf = open(sys.argv[1])\n{script}\n")
        path = bench.write(document, job, io=True, config={"streaming": "auto", "rehearse": "wait"})
        ours, *plain = bench.run_all([path, *([bench.write_plain(document, job)] if is_both else [])])
        assert ours.ok, ours.errors
        assert all(ours.results == each.results for each in plain)
        return ours

    assert reads not in run(_ONCE).log
    begun.unlink()
    meets.touch()
    assert reads in run(_ONCE).log
    meets.unlink()
    assert reads not in run(_ASKS, is_both=True).log


def test_a_reader_that_is_declared_needs_no_proof(proving: Proving) -> None:
    """Nor has its producer to be declared."""
    declared = reader()
    declared["inputs"]["file"] = {"type": "File", "streamable": True}
    _, ours = proving.run_both(chain(producer(), declared), None)
    assert_streamed(ours)


def test_requirements_in_the_input_object_are_those_of_the_tools(proving: Proving) -> None:
    def candidate(*given: Document) -> Candidate:
        inputs = {"cwl:requirements": [*given]}
        path = proving.bench.write(chain(producer(), reader()), inputs, io=True, config=AUTO)
        return plan_file(path).plans["main"].proofs.candidates["/b"]

    variable = candidate({"class": "EnvVarRequirement", "envDef": {"LC_ALL": "C"}})
    assert variable.tool != candidate().tool
    assert variable.once is None
    assert candidate({"class": "NetworkAccess", "networkAccess": True}).once is not None, "it must not run twice"


def test_what_is_planned(proving: Proving, monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> tuple[str, str | None]:
        [one] = prospects(plan_file(path).plans["main"])
        assert (one.output, one.input) == ("/a/out", "/b/file")
        return one.state, one.reason

    monkeypatch.setenv("XDG_DATA_HOME", str(proving.bench.data))
    path = proving.bench.write(chain(producer(), reader()), {}, io=True, config=AUTO)
    assert state()[0] == "unknown"
    proving.prove(path, {("/b", "file"): "net"})
    assert state() == ("streams", None)
    plan = plan_file(path).plans["main"]
    asyncio.run(
        proving.remember(Proof(ProofKey(plan.proofs.contents["/a"], "writes", "out"), "/a", 1.0, reason="it was cut"))
    )
    assert state() == ("refused", "/a/out: it was cut [SFIO-L002]")


def test_what_is_planned_of_the_jobs_of_a_scatter(bench: Bench) -> None:
    """Elements go on one by one meanwhile: that says neither whether the files can stream, nor why not."""
    write = tool("cat $file > out.txt; cat $file > out.txt.idx", {"file": "File"}, {"out": found("out.txt")})
    indexed = {**write, "outputs": {"out": {**write["outputs"]["out"], "secondaryFiles": [".idx"]}}}
    steps: dict[str, Document] = {
        "a": {"run": write, "in": {"file": "files"}, "scatter": "file"},
        "b": {"run": indexed, "in": {"file": "a/out"}, "scatter": "file"},
        "c": {"run": reader(), "in": {"file": "b/out"}, "scatter": "file"},
    }
    file = bench.directory / "file"
    file.touch()
    document = workflow({"files": "File[]"}, steps, {"c": "c/out"})
    path = bench.write(document, {"files": [{"class": "File", "path": str(file)}]}, io=True, config=AUTO)
    tried, never = prospects(plan_file(path).plans["main"])
    assert tried.state == never.state == "by element"
    assert tried.reason is not None
    assert tried.reason.startswith("not yet tried: ")
    assert never.reason is not None
    assert "secondaryFiles" in never.reason


@pytest.mark.parametrize(("way", "excerpt"), [pytest.param("net", None, marks=pytest.mark.long), ("pipe", 6)])
def test_what_is_exported_streams_for_others_in_their_first_run(
    way: Way, excerpt: int | None, proving: Proving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(proving.bench.data))
    config = {**AUTO, "annotations": "proven.yml"}
    path = proving.bench.write(chain(producer(), reader()), {}, io=True, config=config)
    annotations = path.parent / "proven.yml"
    annotations.write_text("steps: {}\n")
    export = ["learned", "export", str(path), "--force", "-o", str(annotations)]
    assert main(export) == 1
    assert annotations.read_text() == "steps: {}\n"
    beside = (TriedBeside("trace", "pipe", (5,), (6, 7)),)
    proving.prove(path, {("/b", "file"): way}, excerpt, beside=beside)
    assert main(export) == 0, capsys.readouterr().err
    proving.store.unlink()
    ours = proving.bench.run_all([path])[0]
    assert ours.ok, ours.errors
    assert_streamed(ours)
    # What others say is forgotten where it was found wrong.
    [shared] = plan_file(path).plans["main"].proofs.known
    assert (shared.way, shared.excerpt, shared.beside) == (way, excerpt, beside)
    asyncio.run(proving.remember(replace(shared, way=None, reason="it asks for the size")))
    assert [proof.way for proof in plan_file(path).plans["main"].proofs.known] == [None]


def test_mistakes_in_what_is_shared(proving: Proving) -> None:
    path = proving.bench.write(chain(producer(), reader()), {}, io=True, config={**AUTO, "annotations": "proven.yml"})
    right = {"input": "/b/file", "read": "net", "extents": [[9, 9]], "tool": "a" * 64, "options": "b" * 64}
    annotations = path.parent / "proven.yml"
    annotations.write_text(json.dumps({"proven": [right]}))
    assert len(plan_file(path).plans["main"].proofs.known) == 1
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input": "/b/other"}, "proven[0].input"),
        ({"read": "fast"}, "proven[0].read"),
        ({"first": 0}, "proven[0].first"),
        ({"extents": []}, "proven[0].extents"),
        ({"beside": "text"}, "proven[0].beside"),
        ({"tool": "12"}, "proven[0].tool"),
        ({"options": None}, "proven[0].options"),
    ]
    for entry, field in wrong:
        annotations.write_text(json.dumps({"proven": [{**right, **entry}]}))
        with pytest.raises(HintErrors) as errors:
            plan_file(path)
        [error] = errors.value.errors
        assert (error.file, error.field) == (str(annotations), field)


def test_it_is_off_by_default(proving: Proving) -> None:
    path = proving.bench.write(chain(producer(), reader()), {}, io=True, config={})
    assert plan_file(path).plans["main"].proofs.candidates == {}


def test_a_reader_that_fails_with_a_stream_reads_the_file(proving: Proving) -> None:
    asks = "import os, stat, sys; sys.exit(not stat.S_ISFIFO(os.fstat(os.open(os.environ['file'], 0)).st_mode))"
    fails = reader(f'python3 -c "{asks}" && {{ note pipe; echo no pipes >&2; exit 3; }}; note file; cat $file')
    document = chain(producer(slow("out.txt", read=" pipe$")), fails)
    _, ours = proving.run_both(document)
    assert ours.time("pipe") < ours.time("end") < ours.time("file")
    [(step, port, reason, _)] = proving.known()
    assert (step, port) == ("/b", "file")
    assert reason is not None
    assert reason.startswith("the tool fails with a stream, and not with the file: ")
    assert "exit code 3" in reason
    # The next run knows it.
    _, again = proving.run_both(document, None, alone=True)
    assert not again.times("pipe")


@pytest.mark.long
def test_a_reader_that_somebody_kills_says_nothing_of_streams(proving: Proving) -> None:
    asks = "import os, stat, sys; sys.exit(not stat.S_ISFIFO(os.fstat(os.open(os.environ['file'], 0)).st_mode))"
    killed = reader(f'python3 -c "{asks}" && {{ note pipe; kill -KILL $$; }}; note file; cat $file')
    _, ours = proving.run_both(chain(producer(slow("out.txt", read=" pipe$")), killed))
    assert ours.time("pipe") < ours.time("end") < ours.time("file")
    assert proving.known() == [("/b", "file", None, 0)]


def test_an_output_that_is_written_again(proving: Proving) -> None:
    """The reader gets the final file; the output is not streamed any more."""
    script = f"{slow('out.txt')}\nprintf 'LINE' | dd of=out.txt conv=notrunc 2> /dev/null"
    _, ours = proving.run_both(chain(producer(script), reader()))
    assert_streamed(ours)
    known = {(step, port): reason for step, port, reason, _ in proving.known()}
    assert (known["/a", "out"] or "").startswith("it was written again "), known
    assert known["/b", "file"] is None
    assert " WARNING " not in ours.log
    _, again = proving.run_both(chain(producer(script), reader()), alone=True)
    assert again.time("read") > again.time("end")


SAID = '{"out": {"class": "File", "path": "out.txt", "basename": "other.txt"}}'
RENAMED = f"{slow('out.txt')}\necho '{SAID}' > cwl.output.json"


def test_an_output_that_gets_another_name_at_the_end(proving: Proving) -> None:
    """The reader starts again with the name that `cwl.output.json` gives; the output is not streamed any more."""
    _, ours = proving.run_both(chain(producer(RENAMED), reader(f"{READ}; echo ${{file##*/}}")))
    assert_streamed(ours)
    known = {(step, port): reason for step, port, reason, _ in proving.known()}
    assert known == {("/a", "out"): "it was out.txt, and is other.txt at the end", ("/b", "file"): None}
    assert " WARNING " not in ours.log


def test_an_output_gets_another_name_on_which_something_depends(proving: Proving) -> None:
    """No job can take back the name, so the run fails. The next run reads the complete file."""
    read = tool(f"{READ}; echo $name", {"file": "File", "name": "string"}, {"out": "stdout"}, stdout="read.txt")
    document = chain(producer(RENAMED), read)
    document["steps"]["b"]["in"]["name"] = {"source": "a/out", "valueFrom": "$(self.basename)"}
    path = proving.bench.write(document, {}, io=True, config=AUTO)
    proving.prove(path, {("/b", "file"): "net"}, name="out.txt")
    ours = proving.bench.finish(proving.bench.start(path), path)
    assert "has the basename other.txt at the end" in clear_error(ours.log)
    assert proving.bench.leftovers() == []
    _, again = proving.run_both(document, way=None, alone=True)
    assert again.time("read") > again.time("end")


def test_a_small_change_in_the_middle_is_found(proving: Proving) -> None:
    """The tool is not known to write front to back."""
    change = "printf x | dd of=out.txt bs=1 seek=9999999 conv=notrunc"
    script = f"{MEET}head -c 32000000 /dev/zero > out.txt; meet had; {change}"
    read = "{ head -c 20000000; note had; cat; } < $file | cksum"
    proving.run_both(chain(producer(script), reader(read)), config=AUTO)
    assert "written again" in str({step: reason for step, _, reason, _ in proving.known()}["/a"])


@pytest.mark.long
def test_what_was_closed_long_before_its_job_ended_is_complete_for_its_readers_then(proving: Proving) -> None:
    """A wrong belief has one effect: the reader starts again."""
    more = proving.bench.data / "more"
    # A tool that names the file as a word would be another tool as soon as the file is there.
    script = f"""data={more.parent}; seq 5 > out.txt
[ -z "$SFIO_JOB" ] || sleep 2.5
[ ! -e "$data/more" ] || echo more >> out.txt
note end"""
    document = chain(producer(script), reader('cat "$file"; note done'))

    def run() -> tuple[Run, int | None]:
        _, ours = proving.run_both(document)
        assert " WARNING " not in ours.log
        [closes] = {proof.closes for proof in known_proofs(proving.store) if proof.key.kind == "writes"}
        return ours, closes

    ours, closes = run()
    assert closes == 1
    assert ours.time("done") > ours.time("end")
    ours, closes = run()
    assert closes == 1
    assert ours.time("done") < ours.time("end")
    more.touch()
    # Plain StreamFlow has to run again, too: the same workflow has other results now.
    document["doc"] = "with more"
    ours, closes = run()
    assert closes == 0
    early, late = ours.times("done")
    assert early < ours.time("end") < late


def test_a_reader_that_reads_as_no_pipe_can(proving: Proving) -> None:
    """Under the net it reads the file when it is there."""
    read = "note read; note read line 1; tail -c 9 $file; head -c 3 $file"
    _, ours = proving.run_both(chain(producer(slow("out.txt")), reader(read)))
    assert ours.time("read") < ours.time("end")


def test_elements_of_a_scatter_go_to_the_next_one_by_one(proving: Proving) -> None:
    """The elements need no proof, and go one by one in the first run."""
    no_core = {"class": "ResourceRequirement", "coresMin": 0}
    first = tool(
        f'{MEET}sleep 0.$number; [ $number != 3 ] || meet "read 1"; echo $number > out$number.txt; note wrote $number',
        {"number": "int"},
        {"out": found("out*.txt")},
        requirements=[no_core],
    )
    # Of several files of one name, which one keeps it among the results may depend on when their jobs end.
    name = "read-$(inputs.file.basename)"
    second = tool('note read $(cat "$file"); cat "$file"', {"file": "File"}, {"out": "stdout"}, stdout=name)
    last = tool('cat "$@"', {}, {"out": "stdout"}, stdout="all.txt")
    last["baseCommand"].append("sh")
    last["inputs"]["files"] = {"type": "File[]", "inputBinding": {"position": 1}}
    steps = {
        "a": {"run": first, "in": {"number": "numbers"}, "scatter": "number"},
        "b": {"run": second, "in": {"file": "a/out"}, "scatter": "file"},
        "c": {"run": last, "in": {"files": "b/out"}},
    }
    document = workflow({"numbers": "int[]"}, steps, {"b": "b/out", "c": "c/out"})
    plain, ours = proving.bench.run_both(document, {"numbers": [3, 1, 2]}, config=AUTO)
    assert plain.time("read 1") > max(plain.time(f"wrote {number}") for number in (1, 2, 3))
    assert ours.time("read 1") < ours.time("wrote 3")
    assert ours.files["all.txt"] == b"3\n1\n2\n"


def test_what_is_planned_for_another_reader_of_a_proven_stream(
    proving: Proving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(proving.bench.data))
    tools = {"b": reader(), "c": reader("cat $file")}
    readers = {name: {"run": each, "in": {"file": "a/out"}} for name, each in tools.items()}
    document = workflow({}, {"a": {"run": producer(), "in": {}}, **readers}, {"b": "b/out"})
    path = proving.bench.write(document, {}, io=True, config=AUTO)
    proving.prove(path, {("/b", "file"): "net"})
    found = {one.input: (one.state, one.reason) for one in prospects(plan_file(path).plans["main"])}
    not_tried = "not yet tried: its job runs once more on an idle core when it has succeeded [SFIO-L003]"
    assert found == {"/b/file": ("streams", None), "/c/file": ("unknown", not_tried)}
