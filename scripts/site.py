"""A hook of MkDocs: links from the pages to other files of the repository lead to the repository."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\]\(\.\./([^)\s]+)\)")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """The text of a page, before it is rendered."""
    return _OUTSIDE.sub(rf"]({config['repo_url']}/blob/main/\1)", markdown)
