"""A module a format; adding one is a module with `read(data)` and an entry here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from philorag.ingestion.detection import Format, detect_format

if TYPE_CHECKING:
    from philorag.model.blocks import ReadDocument

__all__ = ["READERS", "Reader", "read_document", "reader_for"]


class Reader(Protocol):
    """Raises `ProcessingError`, and nothing else, for whatever is wrong with *data*."""

    def __call__(self, data: bytes, /) -> ReadDocument: ...


READERS: dict[Format, str] = {
    "epub": "philorag.ingestion.readers.epub",
    "html": "philorag.ingestion.readers.html",
    "markdown": "philorag.ingestion.readers.markdown",
    "pdf": "philorag.ingestion.readers.pdf",
    "plain": "philorag.ingestion.readers.plain",
}


def reader_for(format_: Format) -> Reader:
    """The reader of a format; its libraries are imported now, not before."""
    return cast("Reader", import_module(READERS[format_]).read)


def read_document(data: bytes, name: str) -> ReadDocument:
    """Detect and read; *name* helps to tell Markdown from plain text."""
    return reader_for(detect_format(data, name))(data)
