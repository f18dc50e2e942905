"""From blocks to the stored text: where each block stands in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from philorag.model import Block, Layer

__all__ = ["Composition", "PlacedBlock", "compose"]

SEPARATOR = "\n\n"
_LAYERS: tuple[Layer, ...] = ("main", "note", "apparatus")


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block with its offsets in the stored text and its number (from 1) within its section and layer.

    A heading has the number of the paragraph that follows it.
    """

    block: Block
    char_start: int
    char_end: int
    paragraph: int


@dataclass(frozen=True, slots=True)
class Composition:
    """A document's stored text; `content[b.char_start:b.char_end] == b.block.text` for each block."""

    content: str
    blocks: tuple[PlacedBlock, ...]


def compose(blocks: Sequence[Block]) -> Composition:
    """Join *blocks* by blank lines: the main text in order, then the notes, then the apparatus."""
    ordered = sorted(blocks, key=lambda block: _LAYERS.index(block.layer))
    numbers: Counter[tuple[object, ...]] = Counter()
    placed = []
    position = 0
    for block in ordered:
        section = (block.layer, block.section_path)
        if block.kind == "heading":
            # Also where the section before has the very same headings.
            numbers[section] = 0
        end = position + len(block.text)
        placed.append(PlacedBlock(block, position, end, numbers[section] + 1))
        if block.kind != "heading":
            numbers[section] += 1
        position = end + len(SEPARATOR)
    return Composition(SEPARATOR.join(block.text for block in ordered), tuple(placed))
