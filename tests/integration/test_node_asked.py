"""A command that asks for the size or the kind of a byte stream by its path finds the whole file there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cwl import streamable, tool, workflow
from lab.node import Job, Node, output
from lab.node_links import pair
from lab.runs import Bench

#: Commands of a shell; `$f` is the path of the input. What they print is what they print of the file itself.
ASKING = {
    "test -s": 'if [ -s "$f" ]; then cat "$f"; else echo empty; fi',
    "test -f": 'if [ -f "$f" ]; then cat "$f"; else echo none; fi',
    "by bash": "bash -c 'if [[ -s $f && -f $f ]]; then cat < $f; else echo empty; fi'",
    "size": f"""{sys.executable} -ISc '
import os, sys
print(os.path.getsize(sys.argv[1]), len(open(sys.argv[1]).read()))' $f""",
    "lstat": f"""{sys.executable} -ISc 'import os, sys; print(os.path.islink(sys.argv[1]))' $f""",
    "may be run": f"""{sys.executable} -ISc 'import os, sys; print(os.access(sys.argv[1], os.X_OK))' $f""",
    "stat": 'stat -L -c "%s %F" "$f"',
    "find": 'find -L "$f" -size +0 -type f | wc -l',
    "copy": 'cp "$f" "$f.copy"; cat "$f.copy"; rm "$f.copy"',
    "relative": 'cd "${f%/*}"; if [ -s "./${f##*/}" ]; then cat "${f##*/}"; fi',
    "another name": 'ln -s "$f" "$f.link"; if [ -s "$f.link" ]; then cat "$f.link"; fi; rm "$f.link"',
    "half read": 'head -n 1 "$f"; if [ -s "$f" ]; then wc -c < "$f"; fi',
    "read": 'cat "$f"; if [ -s "$f" ]; then wc -c < "$f"; fi',
    "while it reads": 'exec 3< "$f"; if [ -s "$f" ]; then cat <&3; fi',
    "moved": 'mv "$f" "$f.moved"; wc -c < "$f.moved"; rm "$f.moved"',
    "a path for a position": f"""{sys.executable} -ISc '
import os, sys
open_file = os.open(sys.argv[1], os.O_PATH)
print(os.fstat(open_file).st_size)' $f""",
    "types": 'find -L "${f%/*}" -type f | wc -l; cat "$f"',
    "type of the link": 'cat "$f"; find "${f%/*}" -type l | wc -l; find "${f%/*}" -type p | wc -l',
    "marks": 'exec 3< "$f"; ls -F "${f%/*}"; cat <&3',
    "entries": f"""{sys.executable} -ISc '
import os, sys
print([(entry.name, entry.is_symlink()) for entry in os.scandir(os.path.dirname(sys.argv[1]))])' $f""",
    "open for both": f"""{sys.executable} -ISc 'import sys; print(len(open(sys.argv[1], "rb+").read()))' $f""",
}


def produce(runtime: Node, pause: float = 0.15) -> tuple[Job, Path]:
    path = runtime.base / "out" / "p"
    script = f"echo one > {path}; sleep {pause}; echo two >> {path}"
    return runtime.shell("p", script, outputs=[output(path.parent, "p")]), path


def run_natively(script: str, path: Path) -> bytes:
    return subprocess.run(
        ["sh", "-c", script], env={**os.environ, "f": str(path)}, stdout=subprocess.PIPE, check=True, timeout=15
    ).stdout


@pytest.mark.parametrize("how", ASKING)
def test_what_is_asked_for_by_path_is_that_of_the_file(runtime: Node, how: str) -> None:
    producer, path = produce(runtime)
    target = runtime.base / "in" / "f"
    job = runtime.shell(
        "c",
        ASKING[how],
        inputs=[runtime.stream("p", path, target)],
        stdout=subprocess.PIPE,
        environment={**os.environ, "f": str(target)},
    )
    printed = job.process.communicate(timeout=15)[0]
    assert (producer.wait(), job.wait()) == (0, 0), job.events()
    target.unlink(missing_ok=True)
    target.symlink_to(path)
    assert printed == run_natively(ASKING[how], target)
    assert [str(event["message"]) for event in job.named("warning")] == [
        f"input from in: the command asks by path for more than the bytes of {path} (stat, access, a listing...), "
        "and waits for the whole file [SFIO-S024]"
    ]
    assert [(event["input"], event["port"]) for event in job.named("warning")] == [("in", "out")]


@pytest.mark.parametrize("script", ['cat "$f"', '[ -r "$f" ] && cat < "$f"', "gzip -c < $f | gzip -dc"])
def test_who_only_reads_waits_for_nothing(runtime: Node, script: str) -> None:
    path, target, seen = runtime.base / "out" / "p", runtime.base / "in" / "f", runtime.base / "seen"
    writer = f"echo one > {path}; while [ ! -e {seen} ]; do sleep 0.01; done; echo two >> {path}"
    runtime.shell("p", writer, outputs=[output(path.parent, "p")])
    script = f"({script}) | (read line; touch {seen}; echo $line; cat)"
    job = runtime.shell(
        "c",
        script.replace("gzip -c < $f | gzip -dc", "cat $f"),
        inputs=[runtime.stream("p", path, target)],
        stdout=subprocess.PIPE,
        environment={**os.environ, "f": str(target)},
    )
    assert job.process.communicate(timeout=15)[0] == b"one\ntwo\n"
    assert job.wait() == 0
    assert not job.named("warning")


def test_who_asks_is_killed_when_the_producer_fails(runtime: Node) -> None:
    path, target = runtime.base / "out" / "p", runtime.base / "in" / "f"
    producer = runtime.shell("p", f"echo one > {path}; sleep 0.2; exit 1", outputs=[output(path.parent, "p")])
    job = runtime.shell(
        "c", f"head -c 1 {target}; [ -s {target} ]", inputs=[runtime.stream("p", path, target)], stdout=-3
    )
    assert producer.wait() == 1
    assert job.wait() == 75
    assert (job.exit()["reason"], job.exit()["input"]) == ("producer", "in")
    assert not os.path.lexists(target)


def test_what_has_changed_since_its_commit_is_not_given(runtime: Node) -> None:
    path, target = runtime.base / "out" / "p", runtime.base / "in" / "f"
    outputs = [output(path.parent, "p", "on_close")]
    assert runtime.shell("p", f"echo x > {path}; sleep 0.2; echo y >> {path}", outputs=outputs).wait() == 0
    job = runtime.shell("c", f"[ -s {target} ] && cat {target}", inputs=[runtime.stream("p", path, target)])
    assert job.wait() == 75
    assert job.exit()["reason"] == "rewritten"
    assert not os.path.lexists(target)


def test_without_a_gate_the_command_gets_whole_files(runtime: Node) -> None:
    _, path = produce(runtime)
    target = runtime.base / "in" / "f"
    job = runtime.shell(
        "c",
        f"[ -s {target} ] && cat {target}",
        inputs=[runtime.stream("p", path, target)],
        stdout=subprocess.PIPE,
        environment={**os.environ, "SFIO_NODE_WITHOUT_GATE": "1"},
    )
    assert job.process.communicate(timeout=15)[0] == b"one\ntwo\n"
    assert job.wait() == 0
    assert [event["message"] for event in job.named("warning")] == [
        "no gate (SFIO_NODE_WITHOUT_GATE is set): the command starts when all that it reads is committed [SFIO-N001]"
    ]


def test_what_comes_from_another_machine_is_brought_as_a_whole(tmp_path: Path) -> None:
    scripts = {
        "asked": '[ -s "$f" ] && cat "$f"',
        "half read": 'head -c 100000 "$f" > "$f.head"; [ -s "$f" ] && cat "$f"',
        "read": 'cat "$f" > "$f.all"; [ -f "$f" ] && cat "$f"',
    }
    with pair(tmp_path) as nodes:
        producer = nodes.write(40, 100_000, 0.005)
        jobs = {}
        for name, script in scripts.items():
            target = nodes.two.base / "in" / name
            environment = {**os.environ, "f": str(target), "copy": str(nodes.two.base / name)}
            inputs = [nodes.link("p", target)]
            jobs[name] = nodes.two.shell(name, f'exec > "$copy"; {script}', inputs=inputs, environment=environment)
        assert [job.wait() for job in (producer, *jobs.values())] == [0, 0, 0, 0]
        for name, job in jobs.items():
            assert (nodes.two.base / name).read_bytes() == nodes.path().read_bytes()
            assert len(job.named("warning")) == 1
            assert not list((nodes.two.base / "in").glob("*.sfio-*"))


@pytest.mark.parametrize("linked", [False, True])
def test_nothing_of_it_is_left_by_a_killed_exec(tmp_path: Path, linked: bool) -> None:
    """The next attempt has its stream again."""
    with pair(tmp_path) as nodes:
        node = nodes.two if linked else nodes.one
        assert nodes.write(2, 1000, 0.0).wait() == 0
        target = node.base / "in" / "f"
        target.parent.mkdir(exist_ok=True)
        inputs = [nodes.link("p", target) if linked else node.stream("p", nodes.path(), target)]
        job = node.shell("c", f"[ -s {target} ]; echo asked; sleep 30", inputs=inputs, stdout=subprocess.PIPE)
        assert job.process.stdout is not None
        assert job.process.stdout.readline() == b"asked\n"
        assert target.is_file()
        job.process.kill()
        assert job.wait_for("exit")["reason"] == "lost"
        assert os.listdir(node.base / "in") == []
        assert node.shell("d", f"cat {target} | wc -c", inputs=inputs, stdout=-3).wait() == 0


def test_results_are_those_of_plain_streamflow(bench: Bench) -> None:
    write = "for i in 1 2 3; do echo line $i; sleep 0.2; done > out.txt"
    produced = tool(write, {}, {"out": streamable(outputBinding={"glob": "out.txt"})})
    scripts = {
        "b": 'if [ -s "$file" ]; then cat "$file"; else echo "input is empty"; fi',
        "c": 'if [ -f "$file" ]; then head -n 1 "$file"; wc -c < "$file"; else echo "no file"; fi',
        "d": "python3 -c 'import os, sys; print(os.path.getsize(os.environ[\"file\"]))'",
        "e": 'cat "$file"',
    }
    steps = {
        name: {
            "run": tool(script, {"file": streamable()}, {"out": "stdout"}, stdout=f"{name}.txt"),
            "in": {"file": "a/out"},
        }
        for name, script in scripts.items()
    }
    names = ["a", *scripts]
    document = workflow({}, {"a": {"run": produced, "in": {}}, **steps}, {name: f"{name}/out" for name in names})
    plain, ours = bench.run_both(document)
    assert plain.files["d.txt"] == b"21\n"
    assert "the command asks by path for more than the bytes of" in ours.errors


def test_the_jobs_of_a_scatter_warn_once(bench: Bench) -> None:
    write = tool("echo $n; sleep 0.3", {"n": "int"}, {"out": streamable("stdout")}, stdout="w.txt")
    read = tool('test -s "$file" && cat "$file"', {"file": streamable()}, {"out": "stdout"}, stdout="r.txt")
    steps = {
        "write": {"run": write, "in": {"n": "numbers"}, "scatter": "n"},
        "read": {"run": read, "in": {"file": "write/out"}, "scatter": "file"},
    }
    document = workflow({"numbers": "int[]"}, steps, {"out": "read/out"})
    _, ours = bench.run_both(document, {"numbers": [1, 2, 3]})
    warnings = [line for line in ours.errors.splitlines() if "the command asks by path" in line]
    assert ["2 more jobs of /read" in line for line in warnings] == [False, True], ours.errors
