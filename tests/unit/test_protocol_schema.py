"""Files that are generated from `node/protocol.yaml` are those that the schema gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.protocol import Field, files

WRITTEN = files()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_a_generated_file_is_what_the_schema_gives(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == WRITTEN[path], "run `python -m scripts.protocol`"


@pytest.mark.parametrize("text", ["text", "text A sentence.", "text? A sentence.", ". A sentence."])
def test_a_field_without_type_or_sentence_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has to be `TYPE"):
        Field.read("name", text)
