from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest

from philorag.errors import DocumentNotFound
from philorag.model import Caller, DocumentFields, SearchFilters
from philorag.services import Services
from philorag.testing import temporary_settings

TEXT = "First sentence. 🦉 ὁ βίος."
FIELDS = DocumentFields(origin="put_document", source_uri="put:Phèdre.md", path="put/Phèdre.md")


@pytest.fixture
async def document_id(services: Services, caller: Caller) -> int:
    return (await services.ingestion.ingest_text(caller, TEXT, ".txt", FIELDS)).document_id


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_a_path_is_found_in_either_unicode_form(services: Services, caller: Caller, document_id: int, form):
    """A path that was typed or copied decomposed names the same document."""
    found = await services.documents.get(caller, path=unicodedata.normalize(form, "put/Phèdre.md"))
    assert found.id == document_id


async def test_a_text_is_paged_by_code_points(services: Services, caller: Caller, document_id: int):
    """Pages join to the whole text, and the last one says that it is."""
    parts, offset = [], 0
    while offset is not None:
        page = await services.documents.page(caller, document_id=document_id, path=None, offset=offset, max_chars=4)
        parts.append(page.content)
        offset = page.next_offset  # type: ignore[assignment]
    assert "".join(parts) == TEXT
    assert page.total_chars == len(TEXT)


async def test_a_page_behind_the_end_is_empty(services: Services, caller: Caller, document_id: int):
    """There is nothing after the end, and no next page."""
    page = await services.documents.page(caller, document_id=document_id, path=None, offset=10_000, max_chars=10)
    assert (page.content, page.next_offset) == ("", None)


async def test_a_removed_document_is_gone_with_its_words(services: Services, caller: Caller, document_id: int):
    """Removing takes the passages out of both legs, and a second removal finds nothing."""
    await services.documents.remove(caller, path="put/Phèdre.md")
    assert not (await services.search.passages(caller, "first sentence", SearchFilters(), 5)).hits
    with pytest.raises(DocumentNotFound):
        await services.documents.remove(caller, document_id=document_id)


async def test_a_foreign_document_is_not_found(services: Services, caller: Caller, document_id: int):
    """Another library's document looks like none, by id and by path."""
    library = temporary_settings(services.settings.data_dir).library
    other = replace(caller, library_id=await services.database.open_library(library), library=library)
    for named in ({"document_id": document_id}, {"path": "put/Phèdre.md"}):
        with pytest.raises(DocumentNotFound):
            await services.documents.get(other, **named)
