"""PDF with a text layer: pages, their printed labels, paragraphs, headings and footnotes."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from philorag.errors import ProcessingError
from philorag.ingestion.detection import MEDIA_TYPES
from philorag.ingestion.normalise import normalise_prose
from philorag.ingestion.readers.assembly import as_date, place_notes
from philorag.ingestion.readers.pdf_layout import Layout, Outline, body_size
from philorag.ingestion.readers.pdf_lines import Line, page_lines
from philorag.ingestion.readers.pdf_pages import PageLabel, infer_labels, without_running_lines
from philorag.model.blocks import ReadDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read"]

_ENCRYPTED = {pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY}
_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?")
_NOT_A_TITLE = re.compile(
    r"(?:untitled|microsoft word|document\d*$|slide \d|print|scan|\(?anonymous\)?$|unknown$|unspecified$)"
    r"|.*\.(?:docx?|pdf|indd|qxd|tex|dvi|rtf|ps)$",
    re.IGNORECASE,
)
_NO_TEXT = (
    "The PDF has no text, only images of pages. Recognise the text first, for example: ocrmypdf --deskew in.pdf out.pdf"
)


def read(data: bytes) -> ReadDocument:
    with _opened(data) as pdf:
        printed = list(_pages(pdf))
        if not any(printed):
            raise ProcessingError(_NO_TEXT, reason="no_text", pages=len(printed))
        labels = _declared_labels(pdf) or infer_labels(printed)
        outline = _outline(pdf)
        info = {key: normalise_prose(value) for key, value in pdf.get_metadata_dict(skip_empty=True).items()}
    size = body_size(printed)
    layout = Layout(without_running_lines(printed, size), size, labels, outline)
    blocks = place_notes(layout.blocks())
    if not blocks:
        raise ProcessingError(_NO_TEXT, reason="no_text", pages=len(printed))
    heading = next((block.text for block in blocks if block.kind == "heading"), None)
    return ReadDocument(
        media_type=MEDIA_TYPES["pdf"],
        blocks=blocks,
        title=_title(info) or heading,
        authors=_authors(info.get("Author", "")),
        metadata=_metadata(info, len(printed)),
    )


@contextmanager
def _opened(data: bytes) -> Iterator[pdfium.PdfDocument]:
    try:
        pdf = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as exc:
        raise _unopened(exc) from exc
    with closing(pdf):
        try:
            yield pdf
        except (pdfium.PdfiumError, UnicodeDecodeError) as exc:
            raise _damaged() from exc


def _unopened(exc: pdfium.PdfiumError) -> ProcessingError:
    if exc.err_code in _ENCRYPTED:
        return ProcessingError(
            "The PDF is encrypted with a password. Save a copy without it, for example: qpdf --decrypt --password=... "
            "in.pdf out.pdf",
            reason="encrypted",
        )
    return _damaged()


def _damaged() -> ProcessingError:
    return ProcessingError("The PDF is damaged or cut off. Get another copy of it.", reason="corrupt")


def _pages(pdf: pdfium.PdfDocument) -> Iterator[list[Line]]:
    if len(pdf) == 0:
        raise _damaged()
    for index in range(len(pdf)):
        with closing(pdf.get_page(index)) as page, closing(page.get_textpage()) as textpage:
            yield page_lines(textpage, index)


def _declared_labels(pdf: pdfium.PdfDocument) -> list[PageLabel | None]:
    labels = [normalise_prose(pdf.get_page_label(index)) for index in range(len(pdf))]
    return [(label, 1.0) if label else None for label in labels] if any(labels) else []


def _outline(pdf: pdfium.PdfDocument) -> Outline:
    outline: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for bookmark in pdf.get_toc(max_depth=6):
        destination = bookmark.get_dest()
        index = destination.get_index() if destination is not None else None
        title = normalise_prose(bookmark.get_title())
        if index is not None and title:
            outline[index].append((bookmark.level + 1, title))
    return outline


def _title(info: dict[str, str]) -> str | None:
    title = info.get("Title", "")
    return title if title and not _NOT_A_TITLE.match(title) else None


def _authors(declared: str) -> tuple[str, ...]:
    """Only semicolons separate: a comma may stand within a name."""
    names = (name.strip() for name in declared.split(";"))
    return tuple(name for name in names if name and not _NOT_A_TITLE.match(name))


def _metadata(info: dict[str, str], pages: int) -> dict[str, object]:
    """When the file was made is not when the work was published, so it is no publication date."""
    metadata: dict[str, object] = {"pages": pages}
    declared = {key.lower(): info.get(key, "") for key in ("Subject", "Keywords", "Producer", "Creator")}
    metadata |= {key: value for key, value in declared.items() if value and not _NOT_A_TITLE.match(value)}
    made = _DATE.match(info.get("CreationDate", ""))
    created = as_date("-".join(part for part in made.groups() if part)) if made else None
    return metadata | ({"file_created": created} if created else {})
