from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from philorag.model.blocks import Layer, NoteAuthor

__all__ = ["CanonicalReference", "Locator"]


@dataclass(frozen=True, slots=True)
class CanonicalReference:
    """A place in a work's own reference system, as `("stephanus", "514a", "Rep. 514a")`."""

    system: str
    value: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Locator:
    """Where a passage stands in its document.

    *char_start* and *char_end* count Unicode code points of the stored text: `content[char_start:char_end]` is the
    passage. *page_index* counts from 0 and, like *paragraph* (from 1 within its section), is that of the passage's
    first block.
    """

    page_index: int | None = None
    page_label: str | None = None
    page_label_confidence: float | None = None
    section_path: tuple[str, ...] = ()
    paragraph: int | None = None
    char_start: int
    char_end: int
    canonical: tuple[CanonicalReference, ...] = ()
    layer: Layer = "main"
    note_author: NoteAuthor | None = None

    def to_json(self) -> dict[str, Any]:
        """The contract's locator object."""
        data = asdict(self)
        return {**data, "section_path": list(self.section_path), "canonical": list(data["canonical"])}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Locator:
        """The locator that `to_json` wrote."""
        return cls(
            **{
                **data,
                "section_path": tuple(data["section_path"]),
                "canonical": tuple(CanonicalReference(**reference) for reference in data["canonical"]),
            }
        )
