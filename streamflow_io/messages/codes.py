"""The codes at the end of messages. A code keeps its meaning, and an unused code is never given to another message."""

from __future__ import annotations

import re
from enum import Enum

_ENDS_IN_CODE = re.compile(r"\[(SFIO-[A-Z]\d{3})\]$")


class Code(str, Enum):
    """The subject of a message.

    The letter: `S`, streams and commits; `N`, the node runtime; `B`, storage bandwidth, cores and memory; `L`, learned
    facts; `P`, parts of files; `T`, telemetry; `C`, CAPIO.
    """

    NOT_STREAMABLE = "SFIO-S001"
    LISTED = "SFIO-S002"
    WHOLE_FILE = "SFIO-S003"
    EXPRESSION = "SFIO-S004"
    KNOWN_AT_THE_END = "SFIO-S005"
    NOT_JOINED = "SFIO-S006"
    NOT_WATCHED = "SFIO-S007"
    WHOLE_LIST = "SFIO-S008"
    VALUE_COMPUTED = "SFIO-S009"
    UNKNOWN_WAY = "SFIO-S010"
    SHARED_TOKEN = "SFIO-S011"
    DIRECTORY_NOT_CLOSED = "SFIO-S012"
    TIME_LIMIT = "SFIO-S013"
    NOTHING_STREAMS = "SFIO-S014"
    NO_NODE_RUNTIME = "SFIO-S015"
    OUT_OF_REACH = "SFIO-S016"
    REWRITTEN = "SFIO-S017"
    REPLACED = "SFIO-S018"
    CHANGED_AFTER_COMMIT = "SFIO-S019"
    WAS_A_STREAM = "SFIO-S020"
    ENDED_WITHOUT = "SFIO-S021"
    NOT_AS_DECLARED = "SFIO-S022"
    ONE_END = "SFIO-S023"
    ASKS_BY_PATH = "SFIO-S024"
    RULE_UNMET = "SFIO-S025"
    UNSAFE_WORKDIR = "SFIO-S026"
    STREAM_REPLACED = "SFIO-S027"
    NO_BYTES = "SFIO-S028"
    NO_WINDOW = "SFIO-S029"
    WINDOW_LOST = "SFIO-S030"

    NO_GATE = "SFIO-N001"
    NO_INOTIFY = "SFIO-N002"
    NOT_MEASURED = "SFIO-N003"
    KEPT_WHOLE = "SFIO-N004"
    NOT_AS_WINDOW = "SFIO-N005"

    NO_STORAGE = "SFIO-B001"
    NOT_HELD = "SFIO-B002"
    NOT_SHARED = "SFIO-B003"
    NEVER_STARTS = "SFIO-B004"
    NO_SPACE = "SFIO-B005"
    NO_MEMORY = "SFIO-B006"
    OVERSTAYS = "SFIO-B007"
    NOT_REMOVED = "SFIO-B008"
    LITTLE_SPACE = "SFIO-B009"
    DISK_LIMIT = "SFIO-B010"

    STORE_NOT_USED = "SFIO-L001"
    NOT_PROVEN = "SFIO-L002"
    NOT_TRIED = "SFIO-L003"

    PARTS_WRITTEN = "SFIO-P001"
    REFUTED = "SFIO-P002"
    NOT_COMPARED = "SFIO-P003"
    NOT_READ_AHEAD = "SFIO-P004"
    NO_PART = "SFIO-P005"
    CHANGED_SINCE_CUT = "SFIO-P006"

    TELEMETRY_ENDS = "SFIO-T001"

    NO_CAPIO = "SFIO-C001"
    CAPIO_NOT_FOR_EDGE = "SFIO-C002"
    CAPIO_NOT_FOR_STEP = "SFIO-C003"
    CAPIO_GIVEN_UP = "SFIO-C004"


def is_about(text: str, code: Code) -> bool:
    """Whether a message ends in a code."""
    return text.endswith(f"[{code.value}]")


def code_of(text: str) -> str | None:
    """Return the code in which a message ends."""
    found = _ENDS_IN_CODE.search(text)
    return found and found[1]


def coded(text: str, code: Code) -> str:
    """Return a message, or a reason in one, with a code at its end. A code that is there already stays."""
    return text if _ENDS_IN_CODE.search(text) else f"{text} [{code.value}]"
