from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from philorag.model import Block, Caller, Document, DocumentFields, ReadDocument, SearchFilters
from philorag.services import Services

TEXT = "Virtue is a state of character concerned with choice, lying in a mean relative to us."
FIELDS = DocumentFields(origin="put_document", source_uri="put:x", path="put/x.md")


async def stored(
    services: Services, caller: Caller, document: ReadDocument, fields: DocumentFields = FIELDS
) -> Document:
    result = await services.pipeline.store(caller, fields, document)
    return await services.documents.get(caller, document_id=result.document_id)


def read(*blocks: Block, **declared: Any) -> ReadDocument:
    return ReadDocument("text/markdown", blocks or (Block(TEXT),), **declared)


async def test_a_document_says_what_it_is(services: Services, caller: Caller):
    """Title, authors, date, tags and category come from the source where the caller gives none."""
    declared = {"tags": "ethics, virtue ,", "category": "primary", "isbn": "x"}
    document = await stored(
        services,
        caller,
        read(title="EN", authors=("A",), publication_date="1893-05", metadata=declared, language="en-GB"),
    )
    assert (document.title, document.authors, document.publication_date) == ("EN", ("A",), "1893-05")
    assert (document.tags, document.category, document.language) == (("ethics", "virtue"), "primary", "en")
    assert document.metadata == {"isbn": "x"}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("aristotle_nicomachean-ethics.md", "Aristotle – Nicomachean Ethics"),
        ("2-on-liberty.txt", "2 On Liberty"),
        ("Zettel 3.txt", "Zettel 3"),
        ("KrV_B.md", "KrV_B"),
        ("περὶ-ψυχῆς.md", "Περὶ Ψυχῆς"),
    ],
)
async def test_an_untitled_document_is_called_after_its_file(services: Services, caller: Caller, name: str, title: str):
    """The file's name stands for a missing title, in words where it is written with hyphens for a machine."""
    fields = replace(FIELDS, path=f"documents/{name}")
    assert (await stored(services, caller, read(), fields)).title == title


@pytest.mark.parametrize("date", ["c. 1893", "1893-13", "1893-02-30"])
async def test_a_date_that_is_none_is_kept_beside(services: Services, caller: Caller, date: str):
    """A date that can't be compared is metadata, not a publication date."""
    document = await stored(services, caller, read(publication_date=date))
    assert document.publication_date is None
    assert document.metadata == {"date": date}


async def test_a_short_passage_is_in_the_documents_language(services: Services, caller: Caller):
    """A note too short to be told is taken to be in the language of its document, unless its script says otherwise."""
    blocks = (Block(TEXT), Block("Compare ibid.", kind="note", layer="note"), Block("ὁ βίος", layer="apparatus"))
    await stored(services, caller, read(*blocks))
    for language, text in (("en", "Compare ibid."), ("grc", "ὁ βίος")):
        answer = await services.search.passages(caller, text, SearchFilters(language=language), 5)
        assert text in [hit.passage.text for hit in answer.hits]


async def test_vectors_are_of_unit_length_on_request(services: Services, caller: Caller):
    """Ranking by cosine is the same with scaled vectors."""
    await services.pipeline.store(caller, FIELDS, read(), unit_length=True)
    vector = services.embedder.embed_query(TEXT)
    (near,) = await services.store.query_similar(caller, list(map(float, vector)), 1, SearchFilters())
    passage = services.embedder.embed_passages([TEXT])[0]
    assert near.cosine == pytest.approx(float(np.dot(vector, passage)), abs=1e-3)


async def test_a_document_without_blocks_is_stored_empty(services: Services, caller: Caller):
    """Nothing to say is no failure of the pipeline: readers decide what is empty."""
    result = await services.pipeline.store(caller, FIELDS, ReadDocument("text/plain", ()))
    assert (result.chunk_count, result.chunks_added) == (0, 0)


async def test_what_was_stored_is_replaced_whole(services: Services, caller: Caller):
    """A new version leaves no passage and no word of the old one to be found."""
    await stored(services, caller, read(Block(TEXT), Block("Zebras are striped.", section_path=("Z",))))
    await stored(services, caller, read(Block(TEXT)))
    answer = await services.search.passages(caller, "zebras", SearchFilters(), 10)
    assert [hit.passage.text for hit in answer.hits] == [TEXT]
    assert {("dense",)} == {hit.matched_by for hit in answer.hits}
