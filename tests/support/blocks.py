"""What holds for the blocks of every reader."""

from __future__ import annotations

import unicodedata

from philorag.model.blocks import Block, ReadDocument

__all__ = ["assert_well_formed", "find", "texts"]


def assert_well_formed(document: ReadDocument) -> None:
    """Texts are normalised and not empty; marks lie within them and lead to notes that exist."""
    anchors = {block.anchor for block in document.blocks if block.layer == "note"}
    assert document.blocks
    for block in document.blocks:
        assert block.text
        assert block.text == block.text.strip()
        assert unicodedata.is_normalized("NFC", block.text)
        assert not {c for c in block.text if unicodedata.category(c) in {"Cc", "Cs"}} - {"\n", "\t"}
        assert block.kind in {"verse", "code", "table"} or "\n" not in block.text
        assert (block.kind == "heading") == (block.heading_level is not None)
        for label, offset in block.marks:
            assert 0 <= offset <= len(block.text)
            assert label in anchors


def texts(document: ReadDocument, kind: str | None = None) -> list[str]:
    return [block.text for block in document.blocks if kind in (None, block.kind)]


def find(document: ReadDocument, start: str) -> Block:
    return next(block for block in document.blocks if block.text.startswith(start))
