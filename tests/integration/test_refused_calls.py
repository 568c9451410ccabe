"""Where calls are refused that look into another process, as in containers, nothing is wrong, and little is later."""

from __future__ import annotations

import pytest

from lab.node import Node
from lab.refused_calls import refusing

TOGETHER = "cat $f > {0}/one & cat $f > {0}/other; wait"


@pytest.mark.parametrize("script", [TOGETHER, "paste $f $f > {0}/one"], ids=["two programs", "one program"])
def test_a_second_opening_is_seen(runtime: Node, script: str) -> None:
    """A second opening must be seen: the process that opens a stream second gets an empty file, or a part."""
    out, fifo = runtime.base / "out", runtime.base / "in" / "f"
    (out / "p").write_text("text\n" * 100)
    events = runtime.run / "jobs" / "p"
    events.mkdir()
    lines = [f'{{"event":"{event}","port":"out","path":"{out}/p","size":500}}\n' for event in ("opened", "committed")]
    (events / "events.jsonl").write_text("".join([*lines, '{"event":"exit","success":true}\n']))
    for number in range(10):
        stream = runtime.stream("p", out / "p", fifo)
        command = f"f={fifo}; {script.format(runtime.base)}"
        job = runtime.shell(f"c{number}", command, inputs=[stream], wrapper=refusing("kcmp"), stderr=-3)
        assert job.wait() == 75, number
        assert "opened again" in str(job.exit()["message"])
