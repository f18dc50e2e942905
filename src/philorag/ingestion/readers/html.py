"""HTML pages: the main content without what surrounds it on a web site."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from selectolax.lexbor import LexborHTMLParser, LexborNode

from philorag.ingestion.decoding import decode_markup
from philorag.ingestion.detection import MEDIA_TYPES
from philorag.ingestion.normalise import clean, normalise_prose
from philorag.ingestion.readers.assembly import as_date, place_notes, require_text
from philorag.ingestion.readers.html_blocks import BlockExtractor
from philorag.ingestion.readers.html_notes import NoteIndex, attributes
from philorag.model.blocks import Block, ReadDocument

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["fragment_blocks", "parse_markup", "read"]

_XML_PROLOGUE = re.compile(r"\A\s*<\?xml[^>]*\?>")
# Not with possessive quantifiers, which CPython matches wrongly before 3.11.5. It is linear without: a tag's name ends
# where it must, and nothing reaches beyond the next `<`.
_SELF_CLOSED = re.compile(r"<([A-Za-z][\w:.-]*)(?=[\s/])((?:[^<>\"'/]|/(?!>)|\"[^\"<]*\"|'[^'<]*')*)/>")
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_TITLES = ("citation_title", "dc.title", "dcterms.title", "og:title")
_AUTHORS = ("citation_author", "dc.creator", "dcterms.creator", "author", "article:author")
_DATES = ("citation_publication_date", "citation_date", "dc.date", "dcterms.issued", "dcterms.date", "date")
_KEPT = [
    "citation_doi",
    "citation_journal_title",
    "citation_volume",
    "citation_issue",
    "citation_firstpage",
    "citation_lastpage",
    "citation_isbn",
    "citation_issn",
    "citation_publisher",
    "dc.identifier",
    "dc.publisher",
    "description",
    "keywords",
]


def read(data: bytes) -> ReadDocument:
    tree = parse_markup(decode_markup(data))
    root = tree.root
    body = tree.body
    declared = _declared(tree)
    language = _language(tree, declared)
    blocks = _blocks(tree, body if body is not None else root, language)
    return ReadDocument(
        media_type=MEDIA_TYPES["html"],
        blocks=require_text(place_notes(blocks)),
        title=_title(tree, declared, blocks),
        authors=tuple(dict.fromkeys(name for key in _AUTHORS for name in declared.get(key, ()) if "://" not in name)),
        publication_date=next(
            (date for key in _DATES for value in declared.get(key, ()) if (date := as_date(value))), None
        ),
        language=language,
        metadata={key: values[0] if len(values) == 1 else values for key in _KEPT if (values := declared.get(key))},
    )


def parse_markup(text: str) -> LexborHTMLParser:
    """Parse HTML, or XHTML with its self-closed elements (`<a id="p1"/>`), which HTML would leave open."""
    if _XML_PROLOGUE.match(text) or "http://www.w3.org/1999/xhtml" in text[:4096]:
        text = _XML_PROLOGUE.sub("", text)
        text = _without_cdata(text)
        text = _SELF_CLOSED.sub(_opened_and_closed, text)
    return LexborHTMLParser(text)


def fragment_blocks(markup: str) -> list[Block]:
    """The text of a piece of HTML inside another format."""
    body = LexborHTMLParser(markup).body
    return BlockExtractor().run(body) if body is not None else []


def _without_cdata(text: str) -> str:
    """CDATA sections as escaped text; split, not searched, so that unclosed ones don't cost quadratic time."""
    first, *sections = text.split("<![CDATA[")
    pieces = [first]
    for section in sections:
        content, closed, following = section.partition("]]>")
        pieces.append(content.replace("&", "&amp;").replace("<", "&lt;") + following if closed else section)
    return "".join(pieces)


def _opened_and_closed(found: re.Match[str]) -> str:
    tag = found[1]
    return found[0] if tag.lower() in _VOID else f"<{tag}{found[2]}></{tag}>"


def _blocks(tree: LexborHTMLParser, body: LexborNode | None, language: str | None) -> list[Block]:
    if body is None:
        return []
    notes = NoteIndex()
    notes.add(tree, "")
    main = _main_content(body)
    blocks = BlockExtractor(notes=notes).run(main, language)
    if main is not body and not blocks:
        blocks = BlockExtractor(notes=notes).run(body, language)
    return blocks


def _main_content(body: LexborNode) -> LexborNode:
    """`main` or a lone `article`; else the body without the margins that are its direct children."""
    main = body.css_first("main, [role=main]")
    articles = body.css("article")
    if main is None and len(articles) == 1:
        main = articles[0]
    if main is not None and _holds_notes(main, body):
        return main
    for margin in body.css("body > header, body > footer, body > aside, body > div > footer, [role=navigation]"):
        if margin.css_first("h1, [role^=doc-], [id^=fn], .footnotes") is None and not _is_note(margin):
            margin.decompose()
    return body


def _holds_notes(main: LexborNode, body: LexborNode) -> bool:
    """Some sites put the notes beside `main`; then the whole body is read."""
    selector = "[role=doc-endnotes], [role=doc-footnote], .footnotes, aside[id]"
    return len(main.css(selector)) == len(body.css(selector))


def _is_note(node: LexborNode) -> bool:
    return bool(attributes(node).get("id")) and node.tag == "aside"


def _declared(tree: LexborHTMLParser) -> dict[str, list[str]]:
    """What `meta` elements say, by lower-case name."""
    found: dict[str, list[str]] = {}
    for node in tree.css("meta[content]"):
        attrs = attributes(node)
        name = (attrs.get("name") or attrs.get("property") or attrs.get("http-equiv") or "").lower()
        value = normalise_prose(attrs["content"])
        if name and value:
            found.setdefault(name, []).append(value)
    return found


def _language(tree: LexborHTMLParser, declared: dict[str, list[str]]) -> str | None:
    html = tree.css_first("html")
    attrs = attributes(html) if html is not None else {}
    named = attrs.get("lang") or attrs.get("xml:lang")
    return named or next((declared[key][0] for key in ("content-language", "dc.language") if key in declared), None)


def _title(tree: LexborHTMLParser, declared: dict[str, list[str]], blocks: Sequence[Block]) -> str | None:
    for key in _TITLES[:3]:
        if key in declared:
            return declared[key][0]
    node = tree.css_first("head > title")
    titled = normalise_prose(clean(node.text())) if node is not None else ""
    heading = next((block.text for block in blocks if block.kind == "heading"), None)
    return titled or next(iter(declared.get("og:title", ())), None) or heading
