"""Hooks of MkDocs: links to other files of the repository lead there, if its address is known; the gallery is added."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).parents[1] / "build" / "gallery"
_OUTSIDE = re.compile(r"\[([^\[\]]*)\]\(\.\./([^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\(pictures/gallery-([\w-]+)\.svg\)")


def on_files(files: Any, config: Any, **_: Any) -> None:
    """Add what `make gallery` has made. Its pictures replace those of the repository, which are of another run."""
    from mkdocs.structure.files import File, InclusionLevel  # tests of the other hook have no MkDocs

    for path in sorted(GALLERY.glob("*/*")):
        name = path.parent.name
        place = f"pictures/gallery-{name}.svg" if path.suffix == ".svg" else f"gallery/{name}/{path.name}"
        if path.suffix == ".svg" and (old := files.get_file_from_path(place)) is not None:
            files.remove(old)
        inclusion = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, place, abs_src_path=str(path), inclusion=inclusion))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The text of a page, before it is rendered."""
    if page.file.src_uri.startswith("gallery/"):
        return markdown  # scripts/gallery.py writes no links to other files of the repository
    if page.file.src_uri == "gallery.md":
        markdown = _PICTURE.sub(with_link, markdown)
    repository = config["repo_url"]
    return _OUTSIDE.sub(rf"[\1]({repository}/blob/main/\2)" if repository else r"\1", markdown)


def with_link(picture: re.Match[str]) -> str:
    """A picture of the gallery, with the page of its run below, if there is one."""
    name = picture[1]
    if not (GALLERY / name / "index.md").exists():
        return picture[0]
    return f"{picture[0]}\n\n[Report page and annotated files of this run](gallery/{name}/index.md)"
