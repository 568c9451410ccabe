"""Words for people. Pure."""


def counted(number: int, what: str) -> str:
    """As `1 step`, `1,400 steps`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
