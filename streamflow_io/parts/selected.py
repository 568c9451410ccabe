"""The part of a file that a job selects itself."""

from __future__ import annotations

import re

from streamflow_io.runtime.extents import Span

_OF = re.compile(r"([0-9]{1,18})of([0-9]{1,18})")


def selected(value: object, parts: object, size: int) -> Span:
    """Where a part is, by bytes. What a tool reads besides, as a header, or to the end of a line, is not in it.

    :param value: what says which part: KofN, or a whole number from 1 with `parts`
    :param parts: how many there are; None: the value says it
    :param size: of the file
    :raises ValueError: if it is none; says why
    """
    if parts is None and isinstance(value, str) and (found := _OF.fullmatch(value)) is not None:
        number, count = int(found[1]), int(found[2])
    elif parts is None:
        raise ValueError(f"{value!r} is not KofN, as 2of16")
    elif _is_whole(value) and _is_whole(parts):
        number, count = int(str(value)), int(str(parts))
    else:
        raise ValueError(f"{value!r} of {parts!r} are not two whole numbers")
    if not 1 <= number <= count:
        allowed = f"1 to {count} are allowed" if count >= 1 else "there is at least one part"
        raise ValueError(f"there is no part {number} of {count}: {allowed}")
    return size * (number - 1) // count, size * number // count


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
