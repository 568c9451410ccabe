"""Words for people. Pure."""


def counted(number: int, what: str) -> str:
    """As `1 step`, `1,400 steps`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size_text(size: float) -> str:
    """Bytes, as `16 B`, `1.2 kB`, `12.3 MB`, with decimal prefixes."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
