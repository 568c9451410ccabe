"""A hook of MkDocs: links from the pages to other files of the repository lead there, if its address is known."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\[\]]*)\]\(\.\./([^)\s]+)\)")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """The text of a page, before it is rendered."""
    repository = config["repo_url"]
    return _OUTSIDE.sub(rf"[\1]({repository}/blob/main/\2)" if repository else r"\1", markdown)
