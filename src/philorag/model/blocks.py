"""What a reader yields: the text of a source as typed blocks, in reading order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Block", "BlockKind", "Layer", "NoteAuthor", "ReadDocument"]

Layer = Literal["main", "note", "apparatus"]
NoteAuthor = Literal["author", "editor", "translator"]
BlockKind = Literal["heading", "paragraph", "quotation", "list_item", "verse", "table", "code", "note"]


@dataclass(frozen=True, slots=True)
class Block:
    """One paragraph-like unit of plain text.

    *text* is Unicode NFC without markup, control characters or leading and trailing white space; line breaks stay
    only where they mean something (verse, code, tables). *section_path* holds the headings above, outermost first;
    for a heading it ends with the heading itself. *page_index* counts from 0; *page_label* is what is printed on the
    page, with *page_label_confidence* in 0..1. A note's *anchor* is the label of its mark; the block that refers to
    it lists that label in *marks* as `(label, offset in text)`.
    """

    text: str
    kind: BlockKind = "paragraph"
    layer: Layer = "main"
    section_path: tuple[str, ...] = ()
    heading_level: int | None = None
    page_index: int | None = None
    page_label: str | None = None
    page_label_confidence: float | None = None
    language: str | None = None
    anchor: str | None = None
    marks: tuple[tuple[str, int], ...] = ()
    note_author: NoteAuthor | None = None


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A source as read: what it says of itself, and its blocks.

    *metadata* holds what the source declares beyond the named fields (JSON values only). *publication_date* is
    `YYYY`, `YYYY-MM` or `YYYY-MM-DD` as declared.
    """

    media_type: str
    blocks: tuple[Block, ...]
    title: str | None = None
    authors: tuple[str, ...] = ()
    publication_date: str | None = None
    language: str | None = None
    metadata: dict[str, object] = field(default_factory=dict)
