"""Rebuild the EPUB and PDF texts of the example library: `python examples/make_library.py`.

The Markdown, plain text and HTML texts in `examples/library/` are their own sources. The binary ones are made from
`examples/library_sources/*.md`, a small dialect of Markdown: front matter (`key: value`), `#` chapters, `##` sections,
`>` quotations, `*emphasis*`, `[passage]{la}` for a passage in another language (Greek is recognised by its letters),
`[^1]` notes, and `{p. 3}` for a page of the print edition (EPUB only).

The same sources, reportlab and DejaVu 2.37 fonts give the same bytes: nothing depends on the clock, on the file
system's order or on chance. The fonts are looked for in DEJAVU_DIR (Debian: `apt-get install fonts-dejavu-core
fonts-dejavu-extra`). reportlab is a development dependency only.
"""

from __future__ import annotations

import os
import re
import sys
import uuid
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from html import escape
from pathlib import Path
from typing import Any, Literal

from reportlab.lib.enums import TA_CENTER, TA_JUSTIFY
from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "library_sources"
LIBRARY = HERE / "library"
DEJAVU_DIR = Path(os.environ.get("DEJAVU_DIR", "/usr/share/fonts/truetype/dejavu"))

Kind = Literal["chapter", "section", "quotation", "paragraph", "page"]

_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_INLINE = re.compile(
    r"\[\^(?P<note>\w+)\]"
    r"|\[(?P<passage>[^\]^]+)\]\{(?P<lang>[a-z]+)\}"
    r"|\*(?P<emphasis>[^*]+)\*"
    rf"|(?P<greek>[{_GREEK}](?:[{_GREEK}\s\u2019,;·\u2014]*[{_GREEK}\u2019])?(?:[;.]$)?)"
)


@dataclass(frozen=True)
class Piece:
    kind: Kind
    text: str


@dataclass(frozen=True)
class Source:
    slug: str
    meta: dict[str, str]
    pieces: tuple[Piece, ...]
    notes: dict[str, str]

    @property
    def published(self) -> date:
        return date.fromisoformat(self.meta["date"])


def read_source(path: Path) -> Source:
    _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
    meta = dict(line.split(": ", 1) for line in head.strip().splitlines())
    pieces: list[Piece] = []
    notes: dict[str, str] = {}
    for block in re.split(r"\n{2,}", body.strip()):
        if note := re.match(r"\[\^(\w+)\]: ", block):
            notes[note[1]] = block[note.end() :]
        else:
            pieces.append(_piece(block))
    return Source(path.stem, meta, tuple(pieces), notes)


def _piece(block: str) -> Piece:
    if page := re.fullmatch(r"\{p\. (\w+)\}", block):
        return Piece("page", page[1])
    marks: tuple[tuple[str, Kind], ...] = (("# ", "chapter"), ("## ", "section"), ("> ", "quotation"))
    for mark, kind in marks:
        if block.startswith(mark):
            return Piece(kind, block.removeprefix(mark))
    return Piece("paragraph", block)


# --- EPUB ---------------------------------------------------------------------------------------------------------

_PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="{lang}" xml:lang="{lang}">
<head><title>{title}</title><link rel="stylesheet" type="text/css" href="style.css"/></head>
<body>
{body}
</body>
</html>
"""
_CSS = """body { font-family: serif; line-height: 1.5; margin: 5%; }
h1, h2 { line-height: 1.2; font-weight: normal; }
blockquote { margin: 1em 2em; }
sup { line-height: 0; }
[role="doc-endnotes"] { font-size: 0.9em; }
"""
_CONTAINER = """<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="EPUB/package.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""
_OPF = """<?xml version="1.0" encoding="UTF-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" xml:lang="{language}">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:identifier id="id">{identifier}</dc:identifier>
<dc:title>{title}</dc:title>
<dc:creator>{author}</dc:creator>
<dc:language>{language}</dc:language>
<dc:date>{date}</dc:date>
<dc:publisher>philorag</dc:publisher>
<dc:rights>Apache-2.0</dc:rights>
<dc:description>{abstract}</dc:description>
{subjects}
<meta property="dcterms:modified">{date}T00:00:00Z</meta>
</metadata>
<manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="style" href="style.css" media-type="text/css"/>
{items}
</manifest>
<spine>
{spine}
</spine>
</package>
"""


@dataclass
class Chapter:
    name: str
    title: str
    body: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)


def _xhtml_inline(text: str) -> str:
    def render(found: re.Match[str]) -> str:
        if label := found["note"]:
            attributes = f'epub:type="noteref" role="doc-noteref" id="r{label}" href="notes.xhtml#n{label}"'
            return f"<sup><a {attributes}>{label}</a></sup>"
        if found["emphasis"]:
            return f"<em>{found['emphasis']}</em>"
        lang = found["lang"] or "grc"
        return f'<span lang="{lang}" xml:lang="{lang}">{found["passage"] or found["greek"]}</span>'

    return _INLINE.sub(render, escape(text, quote=False))


def _xhtml_piece(piece: Piece) -> str:
    if piece.kind == "page":
        return (
            f'<span epub:type="pagebreak" role="doc-pagebreak" id="p{piece.text}" '
            f'aria-label="{piece.text}" title="{piece.text}"></span>'
        )
    text = _xhtml_inline(piece.text)
    shapes = {
        "chapter": f"<h1>{text}</h1>",
        "section": f"<h2>{text}</h2>",
        "quotation": f"<blockquote><p>{text}</p></blockquote>",
    }
    return shapes.get(piece.kind, f"<p>{text}</p>")


def _chapters(source: Source) -> list[Chapter]:
    chapters: list[Chapter] = []
    for piece in source.pieces:
        if piece.kind == "chapter":
            chapters.append(Chapter(f"chapter{len(chapters) + 1}.xhtml", piece.text))
        chapter = chapters[-1]
        first = piece.kind == "page" and len(chapter.body) == 1  # the page begins with the chapter's heading
        chapter.body.insert(0 if first else len(chapter.body), _xhtml_piece(piece))
        if piece.kind == "page":
            chapter.pages.append(piece.text)
    return chapters


def _title_page(meta: dict[str, str]) -> str:
    return (
        '<section epub:type="titlepage">\n'
        f"<h1>{escape(meta['title'])}</h1>\n<p>{escape(meta['author'])}</p>\n<p>{meta['date'][:4]}</p>\n"
        f"<p>{escape(meta['abstract'])}</p>\n</section>"
    )


def _endnotes(source: Source, chapters: list[Chapter]) -> str:
    rows = []
    for label, text in source.notes.items():
        home = next(chapter.name for chapter in chapters if f'id="r{label}"' in "".join(chapter.body))
        back = f'<a epub:type="backlink" role="doc-backlink" href="{home}#r{label}">↩</a>'
        note = f"<p>{_xhtml_inline(text)} {back}</p>"
        rows.append(f'<li epub:type="endnote" id="n{label}">{note}</li>')
    listed = "\n".join(rows)
    return f'<section epub:type="endnotes" role="doc-endnotes">\n<h1>Notes</h1>\n<ol>\n{listed}\n</ol>\n</section>'


def _nav(source: Source, chapters: list[Chapter]) -> str:
    entries = [("title.xhtml", source.meta["title"]), *((c.name, c.title) for c in chapters), ("notes.xhtml", "Notes")]
    toc = "\n".join(f'<li><a href="{name}">{_xhtml_inline(title)}</a></li>' for name, title in entries)
    pages = "\n".join(f'<li><a href="{c.name}#p{page}">{page}</a></li>' for c in chapters for page in c.pages)
    return (
        f'<nav epub:type="toc" role="doc-toc" id="toc"><h1>Contents</h1>\n<ol>\n{toc}\n</ol></nav>\n'
        f'<nav epub:type="page-list" role="doc-pagelist" hidden="hidden"><h1>Pages</h1>\n<ol>\n{pages}\n</ol></nav>'
    )


def _package(source: Source, names: list[str]) -> str:
    meta = {key: escape(value) for key, value in source.meta.items()}
    ids = [(name.removesuffix(".xhtml"), name) for name in names]
    return _OPF.format(
        **meta,
        identifier=uuid.uuid5(uuid.NAMESPACE_URL, f"https://philorag.example/library/{source.slug}").urn,
        subjects="\n".join(f"<dc:subject>{tag}</dc:subject>" for tag in meta["tags"].split(", ")),
        items="\n".join(f'<item id="{i}" href="{name}" media-type="application/xhtml+xml"/>' for i, name in ids),
        spine="\n".join(f'<itemref idref="{i}"/>' for i, _ in ids),
    )


def make_epub(source: Source, target: Path) -> None:
    chapters = _chapters(source)
    bodies = {"title.xhtml": _title_page(source.meta)}
    bodies |= {chapter.name: "\n".join(chapter.body) for chapter in chapters}
    bodies["notes.xhtml"] = _endnotes(source, chapters)
    package = _package(source, list(bodies))
    bodies["nav.xhtml"] = _nav(source, chapters)
    members = {"mimetype": "application/epub+zip", "META-INF/container.xml": _CONTAINER, "EPUB/package.opf": package}
    for name, body in bodies.items():
        members[f"EPUB/{name}"] = _PAGE.format(
            lang=source.meta["language"], title=escape(source.meta["title"]), body=body
        )
    members["EPUB/style.css"] = _CSS
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, text in members.items():
            entry = zipfile.ZipInfo(name)  # dated 1980-01-01, whatever the clock says
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, text.encode())


# --- PDF ----------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT = A5
SIDE, TOP, BOTTOM = 52.0, 66.0, 56.0
MEASURE = WIDTH - 2 * SIDE
DEPTH = HEIGHT - TOP - BOTTOM
FRONT_PAGES = 2
NOTE_GAP = 14.0
KEEP_WITH_HEADING = 60.0

_BASE = ParagraphStyle("base", fontName="Serif", fontSize=9.2, leading=13.6, alignment=TA_JUSTIFY)
_STYLES = {
    "paragraph": _BASE,
    "indented": ParagraphStyle("indented", _BASE, firstLineIndent=14),
    "quotation": ParagraphStyle("quotation", _BASE, leftIndent=16, rightIndent=16, fontSize=8.8, leading=13),
    "chapter": ParagraphStyle("chapter", _BASE, fontName="Serif-Bold", fontSize=10.6, leading=15, alignment=0),
    "section": ParagraphStyle("section", _BASE, fontName="Serif-Italic", alignment=0),
    "note": ParagraphStyle("note", _BASE, fontSize=7.3, leading=10),
    "title": ParagraphStyle(
        "title", _BASE, fontSize=21, leading=28, alignment=TA_CENTER, leftIndent=26, rightIndent=26
    ),
    "subtitle": ParagraphStyle(
        "subtitle", _BASE, fontName="Serif-Italic", fontSize=11, leading=16, alignment=TA_CENTER
    ),
    "centred": ParagraphStyle("centred", _BASE, fontSize=10, leading=15, alignment=TA_CENTER),
}
_SPACE = {"chapter": 20.0, "section": 12.0, "quotation": 7.0}


@dataclass
class Item:
    paragraph: Any
    style: str
    space: float
    text: str


@dataclass
class Page:
    items: list[Item] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)
    used: float = 0.0


def _register_fonts() -> None:
    faces = {"Serif": "", "Serif-Bold": "-Bold", "Serif-Italic": "-Italic", "Serif-BoldItalic": "-BoldItalic"}
    for name, suffix in faces.items():
        pdfmetrics.registerFont(TTFont(name, str(DEJAVU_DIR / f"DejaVuSerifCondensed{suffix}.ttf")))
    pdfmetrics.registerFontFamily("Serif", *faces)


def _pdf_inline(text: str, *, upright: bool = False) -> str:
    def render(found: re.Match[str]) -> str:
        if label := found["note"]:
            return f'<super rise="3.2" size="6.2">{label}</super>'
        if found["greek"]:
            return found["greek"]
        passage = found["passage"] or found["emphasis"]
        return passage if upright and found["passage"] else f"<i>{passage}</i>"

    return _INLINE.sub(render, escape(text, quote=False))


def _items(source: Source) -> list[Item]:
    items: list[Item] = []
    before: str = "chapter"
    for piece in source.pieces:
        style: str = "indented" if piece.kind == before == "paragraph" else piece.kind
        space = max(_SPACE.get(piece.kind, 0.0), 7.0 if before in {"chapter", "section", "quotation"} else 0.0)
        markup = _pdf_inline(piece.text, upright=piece.kind == "quotation")
        items.append(Item(Paragraph(markup, _STYLES[style]), style, space, piece.text))
        before = piece.kind
    return items


def _height(paragraph: Any) -> float:
    return float(paragraph.wrap(MEASURE, 10_000)[1])


def _marks(paragraph: Any) -> list[str]:
    """The labels of the notes referred to; after a split reportlab keeps words, `[width, (frag, text), …]`."""
    pairs: list[tuple[Any, str]] = []
    for frag in paragraph.frags:
        pairs += frag[1:] if isinstance(frag, list) else [(frag, getattr(frag, "text", ""))]
    return [text.strip() for frag, text in pairs if getattr(frag, "rise", 0)]


def _note(label: str, source: Source) -> Any:
    return Paragraph(
        f'<super rise="2.4" size="5.4">{label}</super> {_pdf_inline(source.notes[label])}', _STYLES["note"]
    )


def _cost(page: Page, paragraph: Any, space: float, source: Source) -> tuple[float, list[Any]]:
    """What placing *paragraph* with its footnotes takes of the page, and those footnotes."""
    notes = [_note(label, source) for label in _marks(paragraph)]
    gap = NOTE_GAP if notes and not page.notes else 0.0
    return (space if page.items else 0.0) + _height(paragraph) + gap + sum(map(_height, notes)), notes


def _place(page: Page, item: Item, source: Source) -> Any:
    """Put as much of *item* on *page* as fits with its notes; what is left over, or None."""
    room = DEPTH - page.used
    cost, notes = _cost(page, item.paragraph, item.space, source)
    keep = KEEP_WITH_HEADING if item.style in {"chapter", "section"} else 0.0
    rest = None
    if cost + keep > room:
        if keep:
            return item.paragraph
        first, rest, cost, notes = _split(page, item, room, source)
        if first is None:
            return item.paragraph
        item = Item(first, item.style, item.space, item.text)
    page.items.append(Item(item.paragraph, item.style, item.space if page.items else 0.0, item.text))
    page.notes += notes
    page.used += cost
    return rest


def _split(page: Page, item: Item, room: float, source: Source) -> tuple[Any, Any, float, list[Any]]:
    leading = item.paragraph.style.leading
    for lines in range(round(_height(item.paragraph) / leading) - 2, 1, -1):
        _height(item.paragraph)
        parts = item.paragraph.split(MEASURE, lines * leading + 0.5)
        if len(parts) == 2:  # noqa: PLR2004 - it was split
            cost, notes = _cost(page, parts[0], item.space, source)
            if cost <= room:
                return parts[0], parts[1], cost, notes
    return None, None, 0.0, []


def compose(source: Source) -> list[Page]:
    pages = [Page()]
    for item in _items(source):
        rest: Any = item.paragraph
        while (rest := _place(pages[-1], Item(rest, item.style, item.space, item.text), source)) is not None:
            assert pages[-1].items, f"{source.slug}: a block with its notes is taller than a page"
            pages.append(Page())
    assert sum(len(page.notes) for page in pages) == len(source.notes), f"{source.slug}: a note is not printed"
    return pages


def _draw(canvas: Any, paragraph: Any, top: float) -> float:
    height = _height(paragraph)
    paragraph.drawOn(canvas, SIDE, top - height)
    return top - height


def _title_leaf(canvas: Any, meta: dict[str, str], published: date) -> None:
    top = HEIGHT - 170
    lines = (
        (meta["title"], "title", 12.0),
        (meta["subtitle"], "subtitle", 44.0),
        (meta["author"], "centred", 0.0),
    )
    for text, style, after in lines:
        top = _draw(canvas, Paragraph(escape(text), _STYLES[style]), top) - after
    imprint = f"The philorag example library<br/>{published.day} {published:%B %Y}"
    _draw(canvas, Paragraph(imprint, _STYLES["centred"]), BOTTOM + 44)
    canvas.showPage()


def _contents_leaf(canvas: Any, meta: dict[str, str], chapters: list[tuple[str, int]]) -> None:
    canvas.bookmarkPage("about")
    canvas.addOutlineEntry("About this text", "about", level=0)
    top = _draw(canvas, Paragraph("About this text", _STYLES["chapter"]), HEIGHT - TOP) - 7
    top = _draw(canvas, Paragraph(escape(meta["abstract"]), _BASE), top) - 24
    top = _draw(canvas, Paragraph("Contents", _STYLES["chapter"]), top) - 20
    canvas.setFont("Serif", 9.2)
    for title, page in chapters:
        canvas.drawString(SIDE, top, title)
        canvas.drawRightString(WIDTH - SIDE, top, str(page))
        top -= 16
    _folio(canvas, "ii")
    canvas.showPage()


def _folio(canvas: Any, label: str) -> None:
    canvas.setFont("Serif", 8)
    canvas.drawCentredString(WIDTH / 2, 30, label)


def _running_head(canvas: Any, meta: dict[str, str], number: int) -> None:
    verso = number % 2 == 0
    canvas.setFont("Serif", 8)
    outer = (SIDE, canvas.drawString) if verso else (WIDTH - SIDE, canvas.drawRightString)
    outer[1](outer[0], HEIGHT - 44, str(number))
    canvas.setFont("Serif-Italic", 8)
    canvas.drawCentredString(WIDTH / 2, HEIGHT - 44, meta["author"] if verso else meta["short"])
    canvas.setLineWidth(0.3)
    canvas.line(SIDE, HEIGHT - 50, WIDTH - SIDE, HEIGHT - 50)


def _text_page(canvas: Any, page: Page, number: int, meta: dict[str, str]) -> None:
    if number == 1:
        _folio(canvas, "1")
    else:
        _running_head(canvas, meta, number)
    top = HEIGHT - TOP
    for index, item in enumerate(page.items):
        top -= item.space
        if item.style == "chapter":
            key = f"page{number}-{index}"
            canvas.bookmarkHorizontal(key, 0, top + 10)
            canvas.addOutlineEntry(item.text, key, level=0)
        top = _draw(canvas, item.paragraph, top)
    if page.notes:
        _footnotes(canvas, page.notes)
    canvas.showPage()


def _footnotes(canvas: Any, notes: list[Any]) -> None:
    top = BOTTOM + sum(map(_height, notes))
    canvas.setLineWidth(0.4)
    canvas.line(SIDE, top + 4, SIDE + 60, top + 4)
    for note in notes:
        top = _draw(canvas, note, top)


def make_pdf(source: Source, target: Path) -> None:
    pages, meta = compose(source), source.meta
    midnight = datetime.combine(source.published, datetime.min.time(), UTC)
    os.environ["SOURCE_DATE_EPOCH"] = str(int(midnight.timestamp()))
    canvas: Any = Canvas(str(target), pagesize=A5, invariant=1, pageCompression=1, lang=meta["language"])
    canvas.setTitle(f"{meta['title']}: {meta['subtitle']}")
    canvas.setAuthor(meta["author"])
    canvas.setSubject(meta["abstract"])
    canvas.setKeywords(meta["tags"])
    canvas.setCreator("philorag, examples/make_library.py")
    canvas.addPageLabel(0, style="ROMAN_LOWER", start=1)
    canvas.addPageLabel(FRONT_PAGES, style="ARABIC", start=1)
    chapters = [(i.text, n) for n, page in enumerate(pages, 1) for i in page.items if i.style == "chapter"]
    _title_leaf(canvas, meta, source.published)
    _contents_leaf(canvas, meta, chapters)
    for number, page in enumerate(pages, 1):
        _text_page(canvas, page, number, meta)
    canvas.save()


def main() -> int:
    _register_fonts()
    LIBRARY.mkdir(exist_ok=True)
    makers = {"epub": make_epub, "pdf": make_pdf}
    for path in sorted(SOURCES.glob("*.md")):
        source = read_source(path)
        form = source.meta["format"]
        target = LIBRARY / f"{source.slug}.{form}"
        makers[form](source, target)
        print(target.relative_to(HERE.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
