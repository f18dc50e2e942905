"""A line that says where a passage is from, in words that a reader can follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from philorag.model import Document, Locator, StoredPassage

__all__ = ["cite"]


def cite(passage: StoredPassage) -> str:
    """As `Aristotle, Nicomachean Ethics (1893), Book I › 7, p. 13, ¶ 2`, as far as it is known."""
    document, locator = passage.document, passage.locator
    return ", ".join(
        part for part in (_work(document), _section(document, locator), _page(locator), _place(locator)) if part
    )


def _work(document: Document) -> str:
    title = document.title or document.path or document.source_uri
    year = f" ({document.publication_date[:4]})" if document.publication_date else ""
    return ", ".join([*document.authors, f"{title}{year}"])


def _section(document: Document, locator: Locator) -> str:
    path = locator.section_path
    return " › ".join(path[1:] if path and path[0] == document.title else path)


def _page(locator: Locator) -> str:
    if locator.page_label:
        return f"p. {locator.page_label}"
    return "" if locator.page_index is None else f"page {locator.page_index + 1} of the file"


def _place(locator: Locator) -> str:
    if locator.layer == "note":
        return "note"
    return "" if locator.paragraph is None else f"¶ {locator.paragraph}"
