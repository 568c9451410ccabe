"""Of whom nothing has been heard for how long."""

from __future__ import annotations

HOLDS_BACK_NOBODY = 10.0
HOLDS_NOTHING = 60.0
# Between two looks of the observer no more is counted: it may have been stopped, and everybody with it.
_MOST_BETWEEN_LOOKS = 3.0


class Silence:
    """How long the beat of each run has not changed, on the clock of the observer: those of other hosts differ."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[int, float]] = {}
        self._last = 0.0

    def look(self, beats: dict[str, int], now: float) -> dict[str, float]:
        """Look at all runs.

        :param beats: of those that there are
        :param now: of a clock that never goes back
        :return: for how many seconds each has been silent
        """
        passed, self._last = min(now - self._last, _MOST_BETWEEN_LOOKS), now
        before, self._beats = self._beats, {}
        for run, beat in beats.items():
            last, seconds = before.get(run, (beat, -passed))
            self._beats[run] = beat, seconds + passed if beat == last else 0.0
        return {run: seconds for run, (_, seconds) in self._beats.items()}
