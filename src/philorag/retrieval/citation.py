"""A line that says where a passage is from, in words that a reader can follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from philorag.model import Document, Locator, StoredPassage

__all__ = ["cite"]

_NAMED_AUTHORS = 3


def cite(passage: StoredPassage) -> str:
    """As `Aristotle, Nicomachean Ethics (1893), trans. F. H. Peters, Book I › 7, p. 13, ¶ 2`, as far as it is known."""
    document, locator = passage.document, passage.locator
    parts = (
        _authors(document.authors),
        _title(document),
        _translators(document),
        _section(document, locator),
        *(reference.text for reference in locator.canonical),
        _page(locator),
        _place(locator),
    )
    return ", ".join(part for part in parts if part)


def _authors(names: Sequence[str]) -> str:
    if len(names) > _NAMED_AUTHORS:
        return f"{names[0]} et al."
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _title(document: Document) -> str:
    title = document.title or document.path or document.source_uri
    year = f" ({document.publication_date[:4]})" if document.publication_date else ""
    return f"{title}{year}"


def _translators(document: Document) -> str:
    names = document.metadata.get("translators")
    return f"trans. {_authors([str(name) for name in names])}" if isinstance(names, list) and names else ""


def _section(document: Document, locator: Locator) -> str:
    path = locator.section_path
    is_title = path and document.title and path[0].casefold() == document.title.casefold()
    return " › ".join(path[1:] if is_title else path)


def _page(locator: Locator) -> str:
    if locator.page_label:
        return f"p. {locator.page_label}"
    return "" if locator.page_index is None else f"page {locator.page_index + 1} of the file"


def _place(locator: Locator) -> str:
    if locator.layer == "note":
        # Whose note it is decides whose words these are.
        return f"{locator.note_author}'s note" if locator.note_author in {"editor", "translator"} else "note"
    if locator.layer == "apparatus":
        return "apparatus"
    return "" if locator.paragraph is None else f"¶ {locator.paragraph}"
