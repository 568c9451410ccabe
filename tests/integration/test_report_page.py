"""The page of a report in a browser: what a reader sees of many jobs, looks for, and prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.browser import CHROMIUM, Page, opened
from lab.telemetry import BEGIN, job
from streamflow_io.records.history import read_history
from streamflow_io.records.records import EndRecord, Record, RunRecord
from streamflow_io.report.analysis.results import run_results
from streamflow_io.report.figures import draw
from streamflow_io.report.page import render

JOBS = 10_000
SIDE_BY_SIDE = 16


def many() -> Iterator[Record]:
    """Jobs that were all submitted at the start, 16 at a time; one has failed."""
    yield RunRecord(time=BEGIN, name="many", workflow="main.cwl", steps={"/work": (), "/last": ("/work",)})
    for index in range(JOBS):
        begin = index // SIDE_BY_SIDE * 2.0
        yield from job(f"/work/0.{index}", 0.0, begin, begin + 1.9, status="failed" if index == 77 else "completed")
    end = JOBS / SIDE_BY_SIDE * 2.0
    yield from job("/last/0", end, end, end + 3)
    yield EndRecord(time=BEGIN + end + 3, status="completed")


async def search(page: Page, words: str) -> str:
    await page.evaluate(
        f"(() => {{ const box = document.getElementById('search'); box.value = '{words}';"
        " box.dispatchEvent(new Event('input')); })()"
    )
    return str(await page.evaluate("document.getElementById('count').textContent"))


async def drawn(page: Page, what: str) -> int:
    return int(await page.evaluate(f"document.querySelectorAll('#drawing {what}').length"))


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
async def test_ten_thousand_jobs(tmp_path: Path) -> None:
    runs = run_results([read_history("many", many())])
    file = tmp_path / "report.html"
    file.write_text(render(runs, draw(runs)), encoding="utf-8")
    async with opened(file.as_uri()) as page:
        await page.wait_for("10,001 of 10,001 jobs")
        # Each step with its lanes, on which neighbours are drawn together: far fewer bars than jobs.
        assert await drawn(page, ".step") == 2
        assert await drawn(page, "*") < 6_000
        assert "16 run" in await page.text()
        await page.evaluate(
            "document.querySelector('#drawing [data-key]').dispatchEvent(new Event('click', {bubbles: true}))"
        )
        assert 16 < await drawn(page, "*") < 12_000
        assert await search(page, "failed") == "1 of 10,001 jobs"
        assert "/work/0.77" in await page.text()
        assert "✕ failed 1.9 s" in await page.text()
        # A part of the run is drawn job by job.
        assert (await search(page, "/work")).startswith("10,000 of")
        before = await drawn(page, "[data-job]")
        for _ in range(9):
            await page.evaluate("document.getElementById('in').click()")
        await page.wait_for("seconds since the start")
        while await drawn(page, "[data-job]") <= before:
            pass
        await page.evaluate(
            "document.querySelector('#drawing [data-job] rect').dispatchEvent(new Event('click', {bubbles: true}))"
        )
        assert "ran from" in str(await page.evaluate("document.getElementById('said').textContent"))
