from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from philorag.model import CanonicalReference, Document, Locator, StoredPassage
from philorag.retrieval.citation import cite

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def citation(
    *,
    title: str | None = "Ethics",
    authors: tuple[str, ...] = (),
    date: str | None = None,
    metadata: dict[str, Any] | None = None,
    **where: Any,
) -> str:
    document = Document(
        id=1, kind="captured", origin="philograph_ingest", source_uri="file:documents/e.md", path="documents/e.md",
        title=title, authors=authors, publication_date=date, language="en", category=None, tags=(),
        metadata=metadata or {},
        extracted_text_hash=None, word_count=1, version=1, created_at=MOMENT, modified_at=MOMENT,
        last_processed_at=None,
    )  # fmt: skip
    locator = Locator(char_start=0, char_end=1, **where)
    return cite(StoredPassage(chunk_id=1, text="x", locator=locator, document=document))


def test_all_that_is_known_is_said():
    """Author, title, year, section, canonical reference, page and paragraph, from the general to the exact."""
    reference = CanonicalReference("bekker", "1097b22", "EN 1097b22")
    assert citation(
        title="Nicomachean Ethics", authors=("Aristotle",), date="1893-05-01", section_path=("Book I", "7"),
        canonical=(reference,), page_index=20, page_label="13", paragraph=2,
    ) == "Aristotle, Nicomachean Ethics (1893), Book I › 7, EN 1097b22, p. 13, ¶ 2"  # fmt: skip


def test_the_translator_is_named():
    """A translation's words are its translator's too."""
    names = {"translators": ["F. H. Peters", "A. Two"]}
    assert citation(authors=("Aristotle",), metadata=names) == "Aristotle, Ethics, trans. F. H. Peters and A. Two"


def test_what_is_unknown_is_left_out():
    """A bare document has its title, or else its path."""
    assert citation() == "Ethics"
    assert citation(title=None) == "documents/e.md"


@pytest.mark.parametrize(
    ("authors", "expected"),
    [
        (("A",), "A, Ethics"), (("A", "B"), "A and B, Ethics"), (("A", "B", "C"), "A, B and C, Ethics"),
        (("A", "B", "C", "D"), "A et al., Ethics"),
    ],
)  # fmt: skip
def test_authors_are_told_from_titles(authors: tuple[str, ...], expected: str):
    """Up to three authors are named, joined by a word, so that none looks like a title."""
    assert citation(authors=authors) == expected


@pytest.mark.parametrize("first", ["Ethics", "ETHICS"])
def test_the_title_is_not_said_twice(first: str):
    """A document's own heading is no section of it."""
    assert citation(section_path=(first, "I")) == "Ethics, I"


def test_an_unlabelled_page_is_not_passed_off_as_a_printed_one():
    """Without a printed label the page is counted in the file, and says so."""
    assert citation(page_index=4) == "Ethics, page 5 of the file"
    assert citation(page_index=4, page_label="iii") == "Ethics, p. iii"


@pytest.mark.parametrize(
    ("layer", "author", "expected"),
    [
        ("note", None, "note"), ("note", "author", "note"), ("note", "editor", "editor's note"),
        ("note", "translator", "translator's note"), ("apparatus", None, "apparatus"), ("main", None, "¶ 3"),
    ],
)  # fmt: skip
def test_whose_words_they_are_is_said(layer: Any, author: Any, expected: str):
    """A note isn't cited as text, and an editor's note not as the author's."""
    assert citation(layer=layer, note_author=author, paragraph=3) == f"Ethics, {expected}"
