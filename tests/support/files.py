"""Files made for tests: valid ones of each format, and the ways in which they can be bad."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from reportlab.lib.pagesizes import A5
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

__all__ = ["PdfPage", "make_epub", "make_pdf", "make_xhtml", "make_zip", "make_zip_bomb"]

CONTAINER = (
    '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
    '<rootfiles><rootfile full-path="{opf}" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
BODY_FONT = "Times-Roman"
BODY_SIZE = 11
NOTE_SIZE = 8
LEADING = 14


def make_zip(entries: Mapping[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def make_zip_bomb(unpacked_bytes: int = 64 << 20) -> bytes:
    """An EPUB of some 100 KB whose chapter unpacks to *unpacked_bytes*."""
    return make_epub({"bomb.xhtml": b"a" * unpacked_bytes})


def make_xhtml(body: str, *, title: str = "", language: str = "en", body_type: str = "bodymatter") -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html>'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" '
        f'xml:lang="{language}"><head><title>{escape(title)}</title></head>'
        f'<body epub:type="{body_type}">{body}</body></html>'
    )


def make_epub(
    chapters: Mapping[str, str | bytes],
    *,
    title: str | None = "A Title",
    metadata: str = "<dc:creator>An Author</dc:creator><dc:language>en</dc:language>",
    nav: str | None = None,
    ncx: str | None = None,
    guide: str = "",
    manifest: str = "",
    extra: Mapping[str, bytes | str] | None = None,
) -> bytes:
    """An EPUB whose spine is *chapters* (name -> XHTML body, or a whole file as bytes) in their order.

    *nav* is the body of `nav.xhtml`; *manifest* and *extra* add items and entries as they are.
    """
    items = [f'<item id="c{i}" href="{name}" media-type="application/xhtml+xml"/>' for i, name in enumerate(chapters)]
    files: dict[str, bytes | str] = {
        f"OEBPS/{name}": body if isinstance(body, bytes) else make_xhtml(body) for name, body in chapters.items()
    }
    if nav is not None:
        items.append('<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>')
        files["OEBPS/nav.xhtml"] = make_xhtml(nav)
    if ncx is not None:
        items.append('<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>')
        files["OEBPS/toc.ncx"] = ncx
    named = f"<dc:title>{escape(title)}</dc:title>" if title else ""
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(chapters)))
    opf = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:opf="http://www.idpf.org/2007/opf">'
        f"{named}{metadata}</metadata><manifest>{''.join(items)}{manifest}</manifest>"
        f"<spine{' toc=' + chr(34) + 'ncx' + chr(34) if ncx else ''}>{spine}</spine>{guide}</package>"
    )
    return make_zip(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER.format(opf="OEBPS/content.opf"),
            "OEBPS/content.opf": opf,
            **files,
            **(extra or {}),
        }
    )


@dataclass(frozen=True)
class PdfPage:
    """A printed page. In *lines* `^1^` sets a raised sign, a leading tab an indent, and `# ` a heading in large type;
    an empty line is a gap. *notes* are `(label, text)` at the foot in small type."""

    lines: Sequence[str] = ()
    notes: Sequence[tuple[str, str]] = ()
    head: str = ""
    number: str = ""
    bookmark: str = ""
    bookmark_level: int = 0
    bold: Sequence[str] = field(default=())


def make_pdf(
    pages: Sequence[PdfPage | Sequence[str]],
    *,
    labels: Sequence[str] | None = None,
    password: str | None = None,
    title: str | None = None,
    author: str | None = None,
) -> bytes:
    """A PDF set in Times on A5. *labels* become /PageLabels; with *password* it is encrypted."""
    buffer = io.BytesIO()
    encryption = StandardEncryption(password, ownerPassword="owner") if password else None
    canvas = Canvas(buffer, pagesize=A5, encrypt=encryption, invariant=True)
    if title:
        canvas.setTitle(title)
    if author:
        canvas.setAuthor(author)
    for index, entry in enumerate(pages):
        page = entry if isinstance(entry, PdfPage) else PdfPage(entry)
        _draw(canvas, page)
        if page.bookmark:
            canvas.bookmarkPage(f"b{index}")
            canvas.addOutlineEntry(page.bookmark, f"b{index}", page.bookmark_level)
        canvas.showPage()
    for index, label in enumerate(labels or ()):
        canvas.addPageLabel(index, style=None, prefix=label)
    canvas.save()
    return buffer.getvalue()


def _draw(canvas: Canvas, page: PdfPage) -> None:
    canvas.setFont(BODY_FONT, 9)
    if page.head:
        canvas.drawString(60, 560, page.head)
    if page.number:
        canvas.drawString(350, 560, page.number)
    y = 520.0
    for line in page.lines:
        if line.startswith("# "):
            canvas.setFont(BODY_FONT, 16)
            canvas.drawString(60, y, line[2:])
            y -= 2 * LEADING
        else:
            _draw_line(canvas, line, y, bold=line in page.bold)
            y -= LEADING
    foot = 40.0 + (LEADING - 4) * len(page.notes)
    for label, text in page.notes:
        canvas.setFont(BODY_FONT, 6)
        canvas.drawString(60, foot + 3, label)
        canvas.setFont(BODY_FONT, NOTE_SIZE)
        canvas.drawString(60 + canvas.stringWidth(label, BODY_FONT, 6), foot, text)
        foot -= LEADING - 4


def _draw_line(canvas: Canvas, line: str, y: float, *, bold: bool) -> None:
    x = 72.0 if line.startswith("\t") else 60.0
    for index, part in enumerate(line.strip("\t").split("^")):
        font, size, rise = ("Times-Bold" if bold else BODY_FONT, BODY_SIZE, 0) if index % 2 == 0 else (BODY_FONT, 7, 4)
        canvas.setFont(font, size)
        canvas.drawString(x, y + rise, part)
        x += canvas.stringWidth(part, font, size)
