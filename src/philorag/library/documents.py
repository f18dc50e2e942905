"""Reading and removing what is in a library, by id or by path."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from philorag.errors import DocumentNotFound

if TYPE_CHECKING:
    from philorag.model import Caller, Document
    from philorag.storage.database import Database
    from philorag.storage.repositories.documents import DocumentListing
    from philorag.storage.unit_of_work import UnitOfWork

__all__ = ["DocumentPage", "DocumentService"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPage:
    """A document and a page of its text, in code points."""

    document: Document
    content: str
    total_chars: int
    next_offset: int | None


class DocumentService:
    """The documents of a library. Every look-up raises `DocumentNotFound` alike for a missing and a foreign one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, caller: Caller, *, document_id: int | None = None, path: str | None = None) -> Document:
        async with self._database.unit_of_work(caller) as work:
            return await self._found(work, document_id, path)

    async def page(
        self, caller: Caller, *, document_id: int | None, path: str | None, offset: int, max_chars: int
    ) -> DocumentPage:
        """The document and its text from *offset* on."""
        async with self._database.unit_of_work(caller) as work:
            document = await self._found(work, document_id, path)
            content, total = await work.documents.content(document.id, offset, max_chars)
        end = offset + len(content)
        return DocumentPage(
            document=document, content=content, total_chars=total, next_offset=end if end < total else None
        )

    async def listing(self, caller: Caller, listing: DocumentListing) -> tuple[list[Document], int]:
        """A page of documents, and how many there are in all."""
        async with self._database.unit_of_work(caller) as work:
            return await work.documents.page(listing)

    async def remove(self, caller: Caller, *, document_id: int | None = None, path: str | None = None) -> Document:
        """Take a document with its passages, vectors and postings out of the library. The file stays."""
        async with self._database.unit_of_work(caller) as work:
            document = await self._found(work, document_id, path)
            # Locked, so that nobody stores passages of it between finding them and removing them.
            await work.documents.lock(document.id)
            await work.documents.delete(document.id)
            await work.commit()
            return document

    @staticmethod
    async def _found(work: UnitOfWork, document_id: int | None, path: str | None) -> Document:
        if document_id is not None:
            document = await work.documents.get(document_id)
        else:
            document = await work.documents.by_path(unicodedata.normalize("NFC", path or ""))
        if document is None:
            named = {"document_id": str(document_id)} if document_id is not None else {"path": path}
            raise DocumentNotFound(
                "There is no such document in this library. Take the id or the path from `list_documents` or a search.",
                **named,
            )
        return document
