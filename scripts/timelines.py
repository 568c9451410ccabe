"""Pictures of when the steps of runs worked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

# What the colours tell apart has words beside it.
_COLOURS = ("#0072b2", "#e69f00")
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_MOST_TICKS = 10
_WIDTH, _ROW, _RIGHT = 560, 26, 30
# Pixels of a letter, at most.
_LETTER = 8
# Part of the picture: a shorter pause between two jobs of a step would not be seen.
_PAUSE = 0.002


@dataclass(frozen=True)
class Span:
    """When a job ran, in seconds."""

    step: str
    began: float
    ended: float


def compared(runs: Mapping[str, Sequence[Span]]) -> str:
    """Return an SVG of runs below each other, on one axis, with a row for each step.

    :param runs: the jobs of each, by its title. Each run has at least one job
    """
    starts = {title: min(span.began for span in spans) for title, spans in runs.items()}
    last = max(span.ended - starts[title] for title, spans in runs.items() for span in spans)
    left = 50 + _LETTER * max(len(span.step) for spans in runs.values() for span in spans)
    parts: list[str] = []
    y = 34
    for title, spans in runs.items():
        end = max(span.ended for span in spans) - starts[title]
        parts.append(f'<text x="16" y="{y}" class="title">{escape(title)}: {end:.1f} s</text>')
        y += 12
        for number, (step, times) in enumerate(busy(spans, _PAUSE * last)):
            parts.append(f'<text x="{left - 12}" y="{y + 17}" text-anchor="end">{escape(step)}</text>')
            for began, ended in times:
                x, wide = left + _WIDTH * (began - starts[title]) / last, max(1, _WIDTH * (ended - began) / last)
                place = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW - 6}"'
                parts.append(f'<rect {place} rx="3" fill="{_COLOURS[number % 2]}"/>')
            y += _ROW
        y += 30
    ticks = "".join(_ticks(last, left, y - 26))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + _WIDTH + _RIGHT} {y}" role="img" '
        'aria-label="Timeline of both runs">'
        "<style>text{font:14px sans-serif;fill:#57606a}.title{font-weight:bold}line{stroke:#8c959f}</style>"
        f"{''.join(parts)}{ticks}</svg>\n"
    )


def busy(spans: Sequence[Span], pause: float) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return when at least one job of each step ran. Steps are in the order of their starts.

    :param pause: a pause between two jobs that is not longer counts as work
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for span in sorted(spans, key=lambda span: span.began):
        times = found.setdefault(span.step, [])
        if times and span.began - times[-1][1] <= pause:
            times[-1] = (times[-1][0], max(times[-1][1], span.ended))
        else:
            times.append((span.began, span.ended))
    return list(found.items())


def _ticks(last: float, left: int, y: int) -> Iterator[str]:
    yield f'<line x1="{left}" y1="{y}" x2="{left + _WIDTH}" y2="{y}"/>'
    distance = next((ticks for ticks in _TICKS if last / ticks <= _MOST_TICKS), 1000)
    for second in range(0, int(last) + 1, distance):
        x = left + _WIDTH * second / last
        yield f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}"/>'
        yield f'<text x="{x:.1f}" y="{y + 20}" text-anchor="middle">{second} s</text>'
