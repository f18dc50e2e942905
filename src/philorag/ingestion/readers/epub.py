"""EPUB 2 and 3: the files of the reading order as one document, notes linked across them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from philorag.ingestion.decoding import decode_markup
from philorag.ingestion.detection import MEDIA_TYPES
from philorag.ingestion.readers.assembly import Sections, place_notes, require_text
from philorag.ingestion.readers.epub_archive import Archive, damaged
from philorag.ingestion.readers.epub_package import Navigation, Package, read_navigation, read_package
from philorag.ingestion.readers.html import parse_markup
from philorag.ingestion.readers.html_blocks import BlockExtractor, PageCounter
from philorag.ingestion.readers.html_notes import NoteIndex, attributes, semantics
from philorag.model.blocks import Block, ReadDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from selectolax.lexbor import LexborHTMLParser

__all__ = ["read"]

_BOILERPLATE = {
    "cover", "titlepage", "halftitlepage", "halftitle", "copyright-page", "imprint", "colophon", "toc", "landmarks",
    "doc-cover", "doc-toc", "doc-colophon",
}  # fmt: skip


def read(data: bytes) -> ReadDocument:
    with Archive(data) as archive:
        package = read_package(archive)
        files = [name for name in package.spine if name in archive]
        if not files:
            raise damaged("its reading order names no file that is there")
        navigation = read_navigation(archive, package)
        blocks = _read_files(archive, files, package, navigation)
    heading = next((block.text for block in blocks if block.kind == "heading"), None)
    return ReadDocument(
        media_type=MEDIA_TYPES["epub"],
        blocks=require_text(place_notes(blocks)),
        title=package.title or heading,
        authors=package.authors,
        publication_date=package.date,
        language=package.language,
        metadata=package.metadata,
    )


def _read_files(archive: Archive, files: list[str], package: Package, navigation: Navigation) -> list[Block]:
    """Twice over the files: the notes of a chapter may stand in a file that comes after it."""
    notes = NoteIndex()
    boilerplate = set(package.skipped)
    markup = {name: archive.read(name) for name in files}
    for name, tree in _trees(markup, files):
        if _is_boilerplate(tree):
            boilerplate.add(name)
        notes.add(tree, name)
    wanted = [name for name in files if name not in boilerplate]
    return _extract(_trees(markup, wanted or files), package, navigation, notes)


def _trees(markup: dict[str, bytes], names: Iterable[str]) -> Iterator[tuple[str, LexborHTMLParser]]:
    for name in names:
        yield name, parse_markup(decode_markup(markup[name]))


def _is_boilerplate(tree: LexborHTMLParser) -> bool:
    """By the type of the body or of the only section in it."""
    body = tree.body
    if body is None:
        return True
    sections = body.css("body > *")
    nodes = [body, *sections] if len(sections) == 1 else [body]
    return any(_BOILERPLATE & set(semantics(attributes(node)).split()) for node in nodes)


def _extract(
    trees: Iterable[tuple[str, LexborHTMLParser]], package: Package, navigation: Navigation, notes: NoteIndex
) -> list[Block]:
    sections, pages = Sections(), PageCounter()
    blocks: list[Block] = []
    for name, tree in trees:
        body = tree.body
        if body is None:
            continue
        if name in navigation.titles and body.css_first("h1, h2, h3, h4, h5, h6") is None:
            sections.enter(*navigation.titles[name])
        extractor = BlockExtractor(name, sections, pages, notes, navigation.pages)
        blocks += extractor.run(body, _language(tree) or package.language)
    return blocks


def _language(tree: LexborHTMLParser) -> str | None:
    html = tree.css_first("html")
    attrs = attributes(html) if html is not None else {}
    return attrs.get("xml:lang") or attrs.get("lang")
