"""Byte streams of sfio-node: every byte once, and the end only with the commit."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import resource
import subprocess
import time
from pathlib import Path

import pytest

from lab.node import Job, Node, built, ended, output, wait_for
from lab.stream_programs import READER, SPEEDS, WRITER

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to see the files of the node runtime")

#: A soft limit that a process may raise.
FEW_FILES = ["prlimit", "--nofile=40:1000"]


def write(
    runtime: Node, pieces: int = 20, size: int = 10_000, pause: float = 0.005, code: int = 0, name: str = "p"
) -> Job:
    out = runtime.base / "out"
    arguments = [str(value) for value in (out / name, pieces, size, pause, code)]
    return runtime.python(name, WRITER, *arguments, outputs=[output(out, name)])


def read(
    runtime: Node, name: str, producer: str = "p", size: int = 65536, pause: float = 0.0, fifo: bool = True
) -> Job:
    target = runtime.base / "in" / f"{name}-{producer}" if fifo else None
    stream = runtime.stream(producer, runtime.base / "out" / producer, target)
    arguments = [str(target or "-"), str(size), str(pause), str(runtime.base / f"{name}.digest")]
    return runtime.python(name, READER, *arguments, inputs=[stream])


def digest(path: Path) -> str:
    data = path.read_bytes()
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def assert_same(runtime: Node, name: str, producer: str = "p") -> None:
    assert (runtime.base / f"{name}.digest").read_text() == digest(runtime.base / "out" / producer)


@SPEEDS
def test_speeds(runtime: Node, pieces: int, size: int, pause: float, reader_size: int, reader_pause: float) -> None:
    producer = write(runtime, pieces, size, pause)
    consumers = [read(runtime, f"c{fifo}", size=reader_size, pause=reader_pause, fifo=fifo) for fifo in (True, False)]
    assert [job.wait() for job in (producer, *consumers)] == [0, 0, 0]
    for job in consumers:
        assert_same(runtime, job.name)
        assert job.named("stream")[0]["bytes"] == pieces * size
        assert job.exit()["usage"]["streamed"] == pieces * size  # type: ignore[index]


def test_bytes_arrive_while_the_producer_runs(runtime: Node) -> None:
    script = f"echo first > {runtime.base}/out/p; while [ ! -e {runtime.base}/seen ]; do sleep 0.01; done"
    producer = runtime.shell("p", script, outputs=[output(runtime.base / "out", "p")])
    fifo = runtime.base / "in" / "f"
    stream = runtime.stream("p", runtime.base / "out" / "p", fifo)
    consumer = runtime.shell("c", f"exec < {fifo}; read line && echo $line > {runtime.base}/seen; cat", inputs=[stream])
    assert (producer.wait(), consumer.wait()) == (0, 0)
    assert (runtime.base / "seen").read_text() == "first\n"


def test_small_writes_gather(runtime: Node) -> None:
    """A reader is not woken by each of them, but each 2 ms."""
    producer = write(runtime, 4000, 100, 0.0001)
    fifo, counted = runtime.base / "in" / "f", runtime.base / "counted"
    script = """
import os, sys, time
fifo = os.open(sys.argv[1], os.O_RDONLY)
data, reads, began = os.read(fifo, 65536), 1, time.monotonic()
size = len(data)
while data := os.read(fifo, 65536):
    reads, size = reads + 1, size + len(data)
print(reads, size, time.monotonic() - began, file=open(sys.argv[2], "w"))
"""
    stream = runtime.stream("p", runtime.base / "out" / "p", fifo)
    consumer = runtime.python("c", script, str(fifo), str(counted), inputs=[stream])
    assert (producer.wait(), consumer.wait()) == (0, 0)
    reads, size, seconds = map(float, counted.read_text().split())
    assert size == 400_000
    assert reads <= seconds / 0.002 * 1.2 + 20


def test_consumer_first(runtime: Node) -> None:
    consumer = read(runtime, "c")
    time.sleep(0.2)
    assert consumer.process.poll() is None
    assert write(runtime).wait() == 0
    assert consumer.wait() == 0
    assert_same(runtime, "c")


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_two_inputs_in_any_order(runtime: Node, order: str) -> None:
    write(runtime, 5, 600_000, 0.01, name="a")
    write(runtime, 5, 600_000, 0.03, name="b")
    base = runtime.base
    streams = [{**runtime.stream(n, base / "out" / n, base / "in" / n), "name": n} for n in "ab"]
    command = "; ".join(f"cat {base}/in/{name} > {base}/copy-{name} || exit 1" for name in order)
    job = runtime.shell("c", command, inputs=streams)
    assert job.wait() == 0
    for name in "ab":
        assert digest(base / f"copy-{name}") == digest(base / "out" / name)
    assert len(job.named("stream")) == 2


def test_two_inputs_read_together(runtime: Node) -> None:
    write(runtime, 50, 20_000, 0.002, name="a")
    write(runtime, 50, 20_000, 0.0, name="b")
    base = runtime.base
    streams = [{**runtime.stream(n, base / "out" / n, base / "in" / n), "name": n} for n in "ab"]
    script = """
import sys
a, b = open(sys.argv[1], "rb"), open(sys.argv[2], "rb")
total = 0
while True:
    x, y = a.read(1000), b.read(1000)
    assert len(x) == len(y)
    if not x: break
    total += len(x)
assert total == 1000000
"""
    assert runtime.python("c", script, base / "in" / "a", base / "in" / "b", inputs=streams).wait() == 0


@pytest.mark.parametrize("most", [0, 50_000, 199_999, 200_000, 10**9])
def test_no_more_is_fed_than_may_be(runtime: Node, most: int) -> None:
    """A job that wants more of a final file ends; one that does not want it goes on."""
    producer = write(runtime)
    base, fifo = runtime.base, runtime.base / "in" / "f"
    stream = {**runtime.stream("p", base / "out" / "p", fifo), "most": most}
    consumer = runtime.shell("c", f"cat {fifo} > {base}/copy", inputs=[stream])
    assert producer.wait() == 0
    assert (consumer.wait() == 0) is (most >= 200_000)
    assert consumer.exit()["reason"] == ("exited" if most >= 200_000 else "outgrown")
    assert (base / "copy").read_bytes() == (base / "out" / "p").read_bytes()[:most]
    first = base / "in" / "first"
    stream = {**runtime.stream("p", base / "out" / "p", first), "most": most}
    begins = runtime.shell("d", f"head -c {min(most, 9)} {first} > {base}/first", inputs=[stream])
    assert (begins.wait(), begins.exit()["reason"]) == (0, "exited")


WORK = {
    "holds": "exec < {fifo}; head -c 50000 > {copy}; {work}",
    "reads_late": "exec < {fifo}; {work}; head -c 50000 > {copy}",
    "asks": "exec < {fifo}; head -c 50000 > {copy}; {work}; cat > {copy}",
}


@pytest.mark.parametrize("how", WORK)
@pytest.mark.parametrize("net", [False, True], ids=["fifo", "net"])
def test_a_job_that_works_on_what_it_has_read_goes_on(runtime: Node, how: str, net: bool) -> None:
    """The job has the stream of a final file open for long, and asks for no more than it may get."""
    producer = write(runtime)
    assert producer.wait() == 0
    base, fifo = runtime.base, runtime.base / "in" / "f"
    stream = {**runtime.stream("p", base / "out" / "p", fifo), "most": 50_000, **({"net": True} if net else {})}
    script = WORK[how].format(fifo=fifo, copy=base / "copy", work="sleep 0.6")
    job = runtime.shell("c", script, inputs=[stream])
    assert (job.wait(), job.exit()["reason"]) == ((75, "outgrown") if how == "asks" else (0, "exited"))
    assert how == "asks" or (base / "copy").read_bytes() == (base / "out" / "p").read_bytes()[:50_000]


@pytest.mark.parametrize("fifo", [True, False], ids=["fifo", "stdin"])
@pytest.mark.parametrize("end", ["code", "kill", "kill exec"])
def test_a_failed_producer_is_no_end_of_file(runtime: Node, end: str, fifo: bool) -> None:
    # One that is killed does not end before that.
    producer = write(runtime, 60 if end == "code" else 100_000, 1000, 0.01, code=1)
    consumer = read(runtime, "c", fifo=fifo)
    if end != "code":
        producer.wait_for("opened")
        time.sleep(0.2)
        os.kill(producer.command_pid() if end == "kill" else producer.process.pid, 9)
    assert consumer.wait() == 75
    assert producer.wait() != 0
    assert not (runtime.base / "c.digest").exists(), "the reader has seen an end"
    assert (consumer.exit()["reason"], consumer.exit()["input"]) == ("producer", "in")
    if end == "kill exec":
        assert producer.exit()["reason"] == "lost"


def test_a_producer_that_makes_no_such_file(runtime: Node) -> None:
    consumer = read(runtime, "c")
    assert runtime.shell("p", "true", outputs=[output(runtime.base / "out", "p")]).wait() == 0
    assert consumer.wait() == 75
    assert consumer.exit()["reason"] == "producer"


def test_what_was_committed_survives_the_producer(runtime: Node) -> None:
    path = runtime.base / "out" / "p"
    outputs = [output(runtime.base / "out", "p", "on_close")]
    script = f"echo x > {path}; until [ -e {runtime.base}/read ]; do sleep 0.01; done; exit 1"
    producer = runtime.shell("p", script, outputs=outputs)
    consumer = read(runtime, "c")
    assert consumer.wait() == 0
    assert_same(runtime, "c")
    (runtime.base / "read").touch()
    assert producer.wait() == 1


@pytest.mark.parametrize("how", ["cut", "replaced", "replaced later"])
def test_rewriting_is_noticed(runtime: Node, how: str) -> None:
    path = runtime.base / "out" / "p"
    ways = {
        "cut": f": > {path}",
        "replaced": f"echo new > {path}.n; mv {path}.n {path}",
        "replaced later": f"rm {path}; sleep 0.3; echo y > {path}",
    }
    fed, ended = runtime.base / "fed", runtime.base / "ended"
    script = f"head -c 100000 /dev/zero > {path}; until [ -e {fed} ]; do sleep 0.01; done; {ways[how]}; sleep 0.5"
    producer = runtime.shell("p", script, outputs=[output(runtime.base / "out", "p")])
    fifo = runtime.base / "in" / "f"
    reads = f"exec < {fifo}; dd bs=1 count=1 of=/dev/null status=none; touch {fed}; cat > /dev/null; touch {ended}"
    consumer = runtime.shell("c", reads, inputs=[runtime.stream("p", path, fifo)])
    assert consumer.wait() == 75
    assert consumer.exit()["reason"] == "rewritten"
    assert not ended.exists(), "the reader has seen an end"
    assert producer.wait() == 0


#: Writes argv[2] bytes to argv[1] in small pieces; when argv[4] exists, again the byte at argv[3], and a few more.
HEADER = """
import os, sys, time
path, size, place, read = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with open(path, "wb", buffering=0) as f:
    for start in range(0, size, 50_000): f.write(b"x" * min(50_000, size - start))
    while not os.path.exists(read): time.sleep(0.01)
    os.pwrite(f.fileno(), b"y", place)
    f.write(b"z" * 10)
"""


@pytest.mark.parametrize(("size", "place"), [(10, 0), (100, 99), (1_000_000, 777_777), (10_000_000, 7_777_777)])
def test_bytes_that_are_written_again_before_the_commit_are_noticed(runtime: Node, size: int, place: int) -> None:
    base, out, fifo = runtime.base, runtime.base / "out", runtime.base / "in" / "f"
    copy, has_read = base / "copy", base / "read"
    arguments = [out / "p", str(size), str(place), has_read]
    producer = runtime.python("p", HEADER, *arguments, outputs=[output(out, "p")])
    script = f"cat {fifo} > {copy} && touch {base}/c.digest"
    consumer = runtime.shell("c", script, inputs=[runtime.stream("p", out / "p", fifo)])
    wait_for(lambda: copy.exists() and copy.stat().st_size == size, "a reader of all that is there")
    has_read.touch()
    assert producer.wait() == 0
    assert consumer.wait() == 75
    assert consumer.exit()["reason"] == "rewritten"
    told = re.search(r"was written again between byte (\d+) and byte (\d+)", str(consumer.exit()["message"]))
    assert told is not None
    assert int(told[1]) <= place < int(told[2])
    assert not (runtime.base / "c.digest").exists(), "the reader has seen an end"


def test_a_file_that_grows_after_its_commit_is_no_shorter_stream(runtime: Node) -> None:
    path = runtime.base / "out" / "p"
    outputs = [output(runtime.base / "out", "p", "on_close")]
    go = runtime.base / "go"
    script = f"echo x > {path}; until [ -e {go} ]; do sleep 0.01; done; echo y >> {path}"
    producer = runtime.shell("p", script, outputs=outputs)
    producer.wait_for("committed")
    go.touch()
    assert producer.wait() == 0
    assert [event["how"] for event in producer.named("changed")] == ["written"]
    consumer = read(runtime, "c")
    assert consumer.wait() == 75
    assert consumer.exit()["reason"] == "rewritten"


def test_an_input_that_is_never_opened(runtime: Node) -> None:
    producer = write(runtime, 50, 1000, 2)
    stream = runtime.stream("p", runtime.base / "out" / "p", runtime.base / "in" / "f")
    assert runtime.shell("c", "true", inputs=[stream]).wait() == 0
    assert producer.process.poll() is None
    producer.cancel()


@pytest.mark.parametrize("script", ["test -r {0} && cat {0} > {1}", "exec 3< {0}; exec 3<&-; sleep 0.3; cat {0} > {1}"])
def test_looking_at_an_input_takes_nothing_of_it(runtime: Node, script: str) -> None:
    write(runtime, 10, 1000, 0.001)
    fifo, copy = runtime.base / "in" / "f", runtime.base / "copy"
    job = runtime.shell("c", script.format(fifo, copy), inputs=[runtime.stream("p", runtime.base / "out" / "p", fifo)])
    assert job.wait() == 0
    assert copy.stat().st_size == 10_000


@pytest.mark.parametrize(
    "script",
    ["head -c 10 {0}; cat {0} > {1}", "cat {0}; sleep 0.2; cat {0} > {1}", "cat {0} {0} > {1}", "paste {0} {0} > {1}"],
    ids=["head, then cat", "twice", "twice in one command", "together"],
)
def test_reading_twice_is_no_success(runtime: Node, script: str) -> None:
    write(runtime, 10, 1000, 0.001)
    fifo, copy = runtime.base / "in" / "f", runtime.base / "copy"
    stream = runtime.stream("p", runtime.base / "out" / "p", fifo)
    job = runtime.shell("c", script.format(fifo, copy), inputs=[stream], stdout=-3)
    assert job.wait() == 75
    assert job.exit()["reason"] == "error"
    assert "opened again" in str(job.exit()["message"])


@pytest.mark.parametrize(
    ("script", "is_read_once"),
    [
        ("cat {0} > {1}", True),
        ("test -r {0} && cat {0} > {1}", True),
        ("exec 3< {0}; exec 3<&-; sleep 0.3; cat {0} > {1}", True),
        ("wc -l < {0}; cat {0} > {1}", False),
        ("cat {0} {0} > {1}", False),
    ],
)
def test_an_empty_stream_is_read_once(runtime: Node, script: str, is_read_once: bool) -> None:
    path, fifo, copy = runtime.base / "out" / "p", runtime.base / "in" / "f", runtime.base / "copy"
    runtime.shell("p", f"sleep 0.1; : > {path}", outputs=[output(path.parent, "p")])
    job = runtime.shell("c", script.format(fifo, copy), inputs=[runtime.stream("p", path, fifo)])
    assert job.wait() == (0 if is_read_once else 75)
    assert ("opened again" in str(job.exit().get("message"))) is not is_read_once
    assert copy.read_text() == ""


def test_a_fifo_left_by_a_killed_job_is_replaced(runtime: Node) -> None:
    os.mkfifo(runtime.base / "in" / "c-p")
    write(runtime)
    assert read(runtime, "c").wait() == 0
    assert_same(runtime, "c")


def test_a_file_in_the_place_of_the_fifo_is_an_error(runtime: Node) -> None:
    (runtime.base / "in" / "c-p").write_text("precious")
    job = read(runtime, "c")
    assert job.wait() == 125
    assert "c-p" in str(job.exit()["message"])
    assert (runtime.base / "in" / "c-p").read_text() == "precious"


@pytest.mark.parametrize("fifo", [True, False], ids=["fifo", "stdin"])
def test_a_killed_exec_is_no_end_of_file(runtime: Node, fifo: bool) -> None:
    """The kernel closes its write end; the reader is killed before it can take that for the end."""
    out = runtime.base / "out"
    for number in range(10):
        source, target = out / f"p{number}", runtime.base / "in" / f"p{number}" if fifo else None
        script = f"cd {out}; exec > {source.name}; echo half; exec sleep 30"
        producer = runtime.shell(source.name, script, outputs=[output(out, source.name)])
        ended = runtime.base / f"ended{number}"
        # Of a job that is killed, the first process dies with its exec: the one that reads is a child of it.
        command = f"exec 3<&0; sh -c 'cat {target or '<&3'}; echo $? > {ended}' & wait"
        stream = runtime.stream(producer, source, target)
        consumer = runtime.shell(f"c{number}", command, inputs=[stream], stdout=subprocess.PIPE)
        assert consumer.process.stdout is not None
        assert consumer.process.stdout.readline() == b"half\n"
        consumer.process.kill()
        consumer.wait_for("exit")
        assert consumer.exit()["reason"] == "lost"
        assert not ended.exists(), f"attempt {number}: it saw an end of file"
        producer.process.terminate()
        producer.wait()


def test_an_input_may_be_opened_twice_before_it_is_read(runtime: Node) -> None:
    script = (
        "import os, sys\n"
        "os.close(os.open(sys.argv[1], os.O_RDONLY))\n"
        "print(len(open(sys.argv[1], 'rb', buffering=0).read()))"
    )
    for number in range(20):
        producer = write(runtime, pieces=2, size=1000, pause=0.0, name=f"p{number}")
        target = runtime.base / "in" / f"p{number}"
        stream = runtime.stream(producer, runtime.base / "out" / f"p{number}", target)
        job = runtime.python(f"c{number}", script, target, inputs=[stream], stdout=subprocess.PIPE)
        assert job.process.communicate(timeout=15)[0] == b"2000\n"
        assert (producer.wait(), job.wait()) == (0, 0)


@needs_root
def test_nothing_is_left_by_a_wrapper_that_gets_no_descriptor_more(runtime: Node) -> None:
    """The fixture looks for it. What is read again after its end needs a FIFO that is watched; this one has none."""
    base, path, target = runtime.base, runtime.base / "out" / "p", runtime.base / "in" / "f"
    script = f"echo a > {path}; while [ ! -e {base}/go ]; do sleep 0.01; done"
    producer = runtime.shell("p", script, outputs=[output(base / "out", "p")])
    job = runtime.shell("c", f"cat {target} > {base}/read", inputs=[runtime.stream("p", path, target)])
    wait_for(lambda: (base / "read").exists() and (base / "read").stat().st_size, "the first byte")
    used = {int(descriptor.name) for descriptor in Path("/proc", str(job.process.pid), "fd").iterdir()}
    free = next(number for number in itertools.count() if number not in used)
    resource.prlimit(job.process.pid, resource.RLIMIT_NOFILE, (free, free))
    (base / "go").touch()
    assert producer.wait() == 0
    assert job.wait() == 0
    assert (base / "read").read_text() == "a\n"


def test_more_streams_than_the_soft_limit_of_open_files(tmp_path: Path) -> None:
    """Programs that use select(2) break under a higher limit, so the command has the lower one still."""
    (out := tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    names = [f"f{number:02}" for number in range(60)]
    with ended(Node(built(), tmp_path, wrapper=FEW_FILES)) as running:
        script = f"for name in {' '.join(names)}; do echo $name > {out}/$name; done"
        producer = running.shell("p", script, outputs=[output(out, "f*", "on_close")])
        streams = [running.stream("p", out / name, tmp_path / "in" / name, name=name) for name in names]
        read = f"ulimit -n; cat {tmp_path}/in/f*"
        stdout = {"stdout": str(tmp_path / "read")}
        consumer = running.shell("c", read, inputs=streams, command=stdout, wrapper=FEW_FILES)
        assert [job.wait() for job in (producer, consumer)] == [0, 0], consumer.exit()
    assert (tmp_path / "read").read_text().split() == ["40", *names]


def test_a_command_whose_calls_nobody_can_answer_is_ended(runtime: Node) -> None:
    """There is no memory for the thread that would, but for a job that needs none."""
    probe = runtime.shell("probe", "sleep 600")
    probe.wait_for("started")
    status = Path("/proc", str(probe.process.pid), "status").read_text()
    size = int(re.search(r"VmPeak:\s*(\d+) kB", status)[1])  # type: ignore[index]
    probe.cancel()
    path, target = runtime.base / "out" / "p", runtime.base / "in" / "f"
    runtime.shell("p", f"echo a > {path}", outputs=[output(runtime.base / "out", "p")])
    limit = ("prlimit", f"--as={(size + 100) * 1024}")
    job = runtime.shell("c", f"cat {target}", inputs=[runtime.stream("p", path, target)], wrapper=limit)
    assert job.wait(40) != 0
    assert "the calls of the command cannot be answered: " in str(job.exit()["message"])


def test_an_output_that_is_a_link_to_a_stream_comes_when_the_file_is_there(runtime: Node) -> None:
    """Before, its reader would take the bytes of the job that made the link."""
    out, others, go = runtime.base / "out", runtime.base / "others", runtime.base / "go"
    others.mkdir()
    write = f"echo hello > {out}/p; until [ -e {go} ]; do sleep 0.01; done"
    producer = runtime.shell("p", write, outputs=[output(out, "p")])
    fifo, last = runtime.base / "in" / "f", runtime.base / "in" / "g"
    script = f"exec < {fifo}; ln -s {fifo} {others}/link; echo > {others}/mark; cat > {runtime.base}/read"
    outputs = [output(others, "link", port="link"), output(others, "mark", port="mark")]
    linking = runtime.shell("b", script, outputs=outputs, inputs=[runtime.stream("p", out / "p", fifo)])
    stream = runtime.stream("b", others / "link", last, port="link")
    reader = runtime.shell("c", f"cat {last} > {runtime.base}/copy", inputs=[stream])
    linking.wait_for("opened")
    assert [Path(str(event["path"])).name for event in linking.named("opened")] == ["mark"]
    go.touch()
    assert [job.wait() for job in (producer, linking, reader)] == [0, 0, 0]
    assert (runtime.base / "copy").read_text() == "hello\n"


@pytest.mark.parametrize("script", ["cat {0}", "stat -Lc %s {0} >&2; cat {0}", "cat {0}; cat {0}"])
def test_a_file_with_the_longest_name(runtime: Node, script: str) -> None:
    """Files that are made beside the stream, for its end and for the whole file, have short names."""
    name = "n" * 255
    producer = runtime.shell(
        "p", f"echo hello > {runtime.base}/out/{name}", outputs=[output(runtime.base / "out", "n*")]
    )
    target = runtime.base / "in" / name
    stream = runtime.stream("p", runtime.base / "out" / name, target)
    consumer = runtime.shell("c", f"{{ {script.format(target)}; }} > {runtime.base}/read", inputs=[stream])
    producer.wait()
    consumer.wait()
    assert (runtime.base / "read").read_text() == "hello\n"
    is_again = script.count("cat") == 2
    assert ("was opened again" in str(consumer.exit().get("message"))) == is_again
    assert is_again or consumer.exit()["success"], consumer.exit()
    assert [path.name for path in (runtime.base / "in").iterdir() if not path.is_symlink()] == []
