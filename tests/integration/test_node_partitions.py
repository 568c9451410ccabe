"""Parts of files: a split says where it cuts, and a reader of a part gets its bytes, all of them or none."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.node import Event, Job, Node, wait_for
from lab.node_parts import CONTENT, MEMORY, TARGETS, identity, lack_memory, part, placed, read, text


@pytest.fixture
def of(runtime: Node) -> Path:
    path = runtime.base / "all"
    path.write_bytes(CONTENT)
    return path


def split(runtime: Node, of: Path, script: str, name: str = "s", **options: object) -> Job:
    """Starts a split, a Python program, which has ``say`` and ``json``."""
    said = runtime.run / "jobs" / name / "parts.jsonl"
    prelude = "import json, os, sys, time\ndef say(text):\n open(os.environ['SFIO_PARTS'], 'a').write(text)\n"
    partition = {"port": "chunks", "of": str(of), "file": str(said)}
    return runtime.python(name, prelude + script, split=partition, **options)


def test_a_split_says_its_parts_while_it_runs(runtime: Node, of: Path) -> None:
    script = (
        "say(json.dumps({'path': 'a', 'extents': [[0, 14], [28, 14]]}) + '\\n')\n"
        'say(\'{"path": "b\\\\udcff", \')\n'
        f"while not os.path.exists('{runtime.base}/go'): time.sleep(0.01)\n"
        'say(\'"extents": ["aGVsbG8K"]}\\n\')\n'
    )
    job = split(runtime, of, script)
    first = job.wait_for("part")
    assert job.process.poll() is None
    common = {"event": "part", "port": "chunks", "path": str(of), "identity": identity(of), "time": first["time"]}
    assert first == {**common, "number": 1, "name": "a", "size": 28, "pieces": [[0, 14], [28, 14]]}
    (runtime.base / "go").touch()
    assert job.wait() == 0
    _, second = job.named("part")
    assert (second["number"], second["name"], second["pieces"]) == (2, "b\udcff", ["aGVsbG8K"])
    assert job.exit()["success"]
    wait_for(lambda: [event["event"] for event in job.served()].count("part") == 2, "serve")


def test_a_command_that_knows_nothing_says_nothing(runtime: Node, of: Path) -> None:
    job = split(runtime, of, "pass")
    assert job.wait() == 0
    assert job.exit()["success"]
    assert not job.named("part")
    assert "parts" not in job.exit()["usage"]  # type: ignore[operator]


def test_the_variable_of_another_job_is_not_seen(runtime: Node) -> None:
    environment = {**os.environ, "SFIO_PARTS": "/x"}
    job = runtime.shell("j", "test -z ${SFIO_PARTS+x}", environment=environment)
    assert job.wait() == 0


BAD = {
    "no JSON": ("say('nonsense\\n')", "SFIO_PARTS, line 1: expected ident at line 1 column 2: nonsense"),
    "second line": (
        'say(\'{"path": "a", "extents": []}\\n\' * 2)',
        "SFIO_PARTS, line 2: path was said before",
    ),
    "extent": (
        'say(\'{"path": "a", "extents": [[4199999, 2]]}\\n\')',
        "SFIO_PARTS, line 1: extent [4199999, 2] is outside the file, which has 4200000 bytes",
    ),
    "slash": ('say(\'{"path": "d/a", "extents": []}\\n\')', "SFIO_PARTS, line 1: path has a slash"),
    "torn": ('say(\'{"path": "a", "extents": []}\')', "SFIO_PARTS, line 1: has no newline at its end"),
    "too many": (
        "say('{\"path\": \"a\", \"extents\": [' + '[0, 1], ' * 64 + '[0, 1]]}\\n')",
        "SFIO_PARTS, line 1: has 65 pieces, and may have 64",
    ),
    "long text": (
        'say(\'{"path": "a", "extents": ["\' + \'AAAA\' * 21846 + \'"]}\\n\')',
        "a text has 65538 bytes, and may have 65536",
    ),
    "long line": (
        "say('{\"path\": \"a\", \"extents\": [' + ' ' * 2000000 + ']}\\n')",
        "SFIO_PARTS, line 1: is longer than 393216 bytes",
    ),
    "replaced": (
        'os.unlink(os.environ[\'SFIO_PARTS\'])\nsay(\'{"path": "a", "extents": []}\\n\')',
        "was replaced: lines have to be appended",
    ),
    "both": (
        "open('a', 'w').close()\nsay('{\"path\": \"a\", \"extents\": []}\\n')",
        "SFIO_PARTS: a is a part, and was written as a file, too",
    ),
}


@pytest.mark.parametrize(("script", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_believed_fails_the_split(runtime: Node, of: Path, script: str, message: str) -> None:
    job = split(runtime, of, script, wrapper=["env", "-C", str(runtime.base)])
    assert job.wait() == 75
    ended = job.exit()
    assert (ended["reason"], ended["success"]) == ("error", False)
    assert message in str(ended["message"])


def test_a_bad_line_ends_a_split_that_goes_on(runtime: Node, of: Path) -> None:
    job = split(runtime, of, "say('?\\n')\ntime.sleep(60)")
    started = time.monotonic()
    assert job.wait() == 75
    assert time.monotonic() - started < 20
    assert "line 1: expected value" in str(job.exit()["message"])


def test_a_file_that_changes_while_it_is_split(runtime: Node, of: Path) -> None:
    script = f"say('{{\"path\": \"a\", \"extents\": []}}\\n')\ntime.sleep(0.02)\nopen('{of}', 'a').write('x')"
    job = split(runtime, of, script)
    assert job.wait() == 75
    assert str(job.exit()["message"]).endswith("has another size than when it was cut into parts [SFIO-P006]")


def test_a_link_that_the_command_replaces(runtime: Node, of: Path) -> None:
    """A file in the place of the link is split if it is there before the first part is said."""
    script = f"open('{of}.own', 'w').write('own')\nos.replace('{of}.own', '{of}')\n"
    say = 'say(\'{"path": "a", "extents": [[0, 3]]}\\n\')\ntime.sleep(0.02)\n'
    target = of.rename(f"{of}.target")
    of.symlink_to(target)
    assert split(runtime, of, script + say).wait() == 0
    of.unlink()
    of.symlink_to(target)
    late = split(runtime, of, say + "time.sleep(0.5)\n" + script, name="late")
    assert late.wait() == 75
    assert "was replaced after it was cut into parts" in str(late.exit()["message"])


@TARGETS
def test_all_bytes_of_all_pieces(runtime: Node, of: Path, kind: str) -> None:
    blob = os.urandom(65536)
    pieces: list[object] = [[0, 0], [0, 1000], text(blob), [1_000_000, 3_000_000], [5, 1], text(b"end")]
    expected = CONTENT[:1000] + blob + CONTENT[1_000_000:4_000_000] + CONTENT[5:6] + b"end"
    job = read(runtime, of, pieces, kind)
    assert job.wait() == 0
    assert (runtime.base / "c.out").read_bytes() == expected
    assert job.exit()["usage"]["parts"] == len(expected)  # type: ignore[index]
    assert job.exit()["usage"]["streamed"] == 0  # type: ignore[index]
    if kind in ("fifo", "stdin"):
        (event,) = job.named("stream")
        assert event["bytes"] == len(expected)
        assert "part" not in event
    assert not os.path.lexists(placed(runtime))


@TARGETS
def test_an_empty_part(runtime: Node, of: Path, kind: str) -> None:
    assert read(runtime, of, [], kind).wait() == 0
    assert (runtime.base / "c.out").read_bytes() == b""


def test_a_file_in_memory(runtime: Node, of: Path) -> None:
    script = 'realpath "$1"; stat -L -c "%a %s %F" "$1"; readlink "$1"; head -c 14 "$1"; tail -c +15 "$1" | wc -c'
    job = read(runtime, of, [[14, 28]], "file", script=f"({script}) > {runtime.base}/told")
    assert job.wait() == 0
    real, mode, link, first, rest = (runtime.base / "told").read_text().splitlines()
    memory = os.readlink(runtime.run / "memory")
    assert real == link == f"{memory}/c/0/c.fq"
    assert (mode, first, rest) == ("400 28 regular file", "line 00000001", "14")
    assert Path(memory).is_relative_to(MEMORY)
    assert os.stat(memory).st_mode & 0o777 == 0o700
    assert os.listdir(memory) == []
    assert runtime.leave() == 0
    assert not os.path.lexists(memory)


@TARGETS
def test_nothing_is_left_where_the_command_begins_beside_its_input(runtime: Node, of: Path, kind: str) -> None:
    target: Event = {"stdin": True} if kind == "stdin" else {"fifo" if kind == "fifo" else "file": str(placed(runtime))}
    if kind == "disk":
        lack_memory(runtime)
    wrapper = ["env", "-C", str(runtime.base / "in")]
    stream = part(of, [[0, 14]], target)
    job = runtime.start("c", ["sh", "-c", "cat * > /dev/null"], inputs=[stream], wrapper=wrapper)
    assert job.wait() == (1 if kind == "stdin" else 0)
    assert os.listdir(runtime.base / "in") == []


@pytest.mark.parametrize("kind", ["file", "disk", "fifo"])
@pytest.mark.parametrize("leads", [True, False])
def test_outputs_that_are_links_to_their_input(runtime: Node, of: Path, kind: str, leads: bool) -> None:
    link = runtime.base / "out" / "deep" / "link"
    link.parent.mkdir()
    script = f'cd {runtime.base}/out; cat "$1" > /dev/null; ln -s {"" if leads else "/none"}"$1" deep/link'
    target: Event = {"fifo" if kind == "fifo" else "file": str(placed(runtime))}
    if kind == "disk":
        lack_memory(runtime)
    stream = part(of, [[0, 14], text(b"more")], target)
    wrapper = ["env", "-C", str(runtime.base / "out")]
    job = runtime.start("c", ["sh", "-c", script, "sh", str(placed(runtime))], inputs=[stream], wrapper=wrapper)
    assert job.wait() == 0
    assert os.path.lexists(placed(runtime)) == leads
    if leads:
        assert not placed(runtime).is_symlink()
        assert link.read_bytes() == CONTENT[:14] + b"more"


@pytest.mark.parametrize("kind", ["file", "disk", "fifo"])
def test_a_failure_leaves_nothing(runtime: Node, of: Path, kind: str) -> None:
    job = read(runtime, of, [[0, 14]], kind, script="ln -s $1 /tmp/sfio-no-such-directory/x; false")
    assert job.wait() == 1
    assert not os.path.lexists(placed(runtime))
    if kind == "file":
        assert os.listdir(os.readlink(runtime.run / "memory")) == []


@pytest.mark.parametrize("kind", ["file", "disk"])
def test_what_an_earlier_attempt_left_is_replaced(runtime: Node, of: Path, kind: str) -> None:
    placed(runtime).write_text("old")
    assert read(runtime, of, [[0, 14]], kind).wait() == 0
    assert (runtime.base / "c.out").read_bytes() == CONTENT[:14]
    placed(runtime, "d.fq").symlink_to("/none")
    assert read(runtime, of, [[14, 14]], kind, name="d").wait() == 0
    assert (runtime.base / "d.out").read_bytes() == CONTENT[14:28]


Change = Callable[[Path], object]
CHANGES: dict[str, Change] = {
    "written": lambda path: path.write_bytes(CONTENT),
    "cut": lambda path: os.truncate(path, 100),
    "grown": lambda path: path.write_bytes(CONTENT + b"x"),
    "replaced": lambda path: (shutil.copy2(path, f"{path}.new"), os.rename(f"{path}.new", path)),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [*(("fifo", change) for change in CHANGES), *((kind, "written") for kind in ("stdin", "file", "disk"))],
)
def test_a_file_that_was_changed_before(runtime: Node, of: Path, kind: str, change: str) -> None:
    script = f'cat "$1" > {runtime.base}/read && touch {runtime.base}/end'
    stream = part(of, [[0, 4_000_000]], {"stdin": True})
    time.sleep(0.02)
    CHANGES[change](of)
    target: Event = {"stdin": True} if kind == "stdin" else {"fifo" if kind == "fifo" else "file": str(placed(runtime))}
    if kind == "disk":
        lack_memory(runtime)
    argument = "/dev/stdin" if kind == "stdin" else str(placed(runtime))
    stream = {**stream, "target": target}
    job = runtime.start("c", ["sh", "-c", script, "sh", argument], inputs=[stream])
    assert job.wait() == 75
    ended = job.exit()
    assert (ended["reason"], ended["input"]) == ("rewritten", "in")
    assert str(of) in str(ended["message"])
    assert not (runtime.base / "end").exists()
    assert not os.path.lexists(placed(runtime))


@pytest.mark.parametrize("kind", ["fifo", "stdin"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_file_that_changes_in_the_middle(runtime: Node, of: Path, kind: str, change: Change) -> None:
    base = runtime.base
    script = (
        f'exec < "$1"; head -c 1000 > {base}/first; touch {base}/begun; '
        f"while [ ! -e {base}/go ]; do sleep 0.01; done; cat > {base}/rest; touch {base}/end"
    )
    job = read(runtime, of, [[0, 4_000_000]], kind, script=script)
    wait_for((base / "begun").exists, "the first bytes")
    time.sleep(0.02)
    change(of)
    (base / "go").touch()
    assert job.wait() == 75
    assert job.exit()["reason"] == "rewritten"
    assert not (base / "end").exists()
    assert not os.path.lexists(placed(runtime))


def test_who_has_read_a_little_of_a_changed_file_fails(runtime: Node, of: Path) -> None:
    base = runtime.base
    script = f'exec 3< "$1"; head -c 5 <&3; touch {base}/begun; while [ ! -e {base}/go ]; do sleep 0.01; done'
    job = read(runtime, of, [[0, 4_000_000]], "fifo", script=script)
    wait_for((base / "begun").exists, "the first bytes")
    time.sleep(0.02)
    of.write_bytes(CONTENT)
    (base / "go").touch()
    assert job.wait() == 75
    assert job.exit()["reason"] == "rewritten"


def test_who_asks_for_more_than_bytes_gets_the_file(runtime: Node, of: Path) -> None:
    script = f'stat -c %s "$1" > {runtime.base}/size; cat "$1" > {runtime.base}/c.out'
    job = read(runtime, of, [[0, 14], [28, 14]], "fifo", script=script)
    assert job.wait() == 0
    assert (runtime.base / "c.out").read_bytes() == CONTENT[:14] + CONTENT[28:42]
    assert (runtime.base / "size").read_text() == "28\n"
    assert "waits for the whole file" in str(job.named("warning")[0]["message"])
    assert not os.path.lexists(placed(runtime))


def test_an_unreadable_file_is_the_error_of_the_job(runtime: Node, of: Path) -> None:
    directory = runtime.base / "in"
    job = runtime.shell("c", "cat", inputs=[part(directory, [[0, 1]], {"stdin": True})])
    assert job.wait() == 75
    assert job.exit()["reason"] == "error"
    assert str(job.exit()["message"]).startswith(f"input from in: cannot read {directory}: ")


def test_a_target_that_cannot_be_made(runtime: Node, of: Path) -> None:
    stream = part(of, [[0, 1]], {"file": str(runtime.base / "none" / "c")})
    job = runtime.shell("c", "true", inputs=[stream])
    assert job.wait() == 125
    assert str(job.exit()["message"]).startswith("input from in: cannot make its file: ")
