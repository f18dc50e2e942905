"""From a tree of HTML to blocks; EPUB chapters go the same way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from philorag.ingestion.normalise import normalise_prose
from philorag.ingestion.readers.assembly import InlineText, Sections, note_author, strip_label
from philorag.ingestion.readers.html_notes import (
    NoteIndex,
    Target,
    attributes,
    is_backlink,
    semantics,
    target_of,
)
from philorag.model.blocks import Block, BlockKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from selectolax.lexbor import LexborNode

__all__ = ["BlockExtractor", "PageCounter"]

_SKIPPED = frozenset(
    [
        "audio",
        "button",
        "canvas",
        "datalist",
        "dialog",
        "form",
        "head",
        "iframe",
        "input",
        "math",
        "nav",
        "noscript",
        "object",
        "option",
        "rp",
        "rt",
        "script",
        "select",
        "style",
        "svg",
        "template",
        "textarea",
        "title",
        "video",
    ]
)
_BLOCK_TAGS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hgroup",
        "hr",
        "html",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "hgroup"})
_KINDS: dict[str, BlockKind] = {"blockquote": "quotation", "dd": "list_item", "li": "list_item", "pre": "code"}
_PAGE_BREAK = re.compile(r"(?:^| )(?:pagebreak|doc-pagebreak)(?: |$)")
_NOTES_SECTION = re.compile(r"(?:^| )(?:footnotes|endnotes|rearnotes|doc-endnotes|doc-footnotes)(?: |$)")
_VERSE = re.compile(r"(?:^|[ :_-])(?:verse|poem|poetry|stanza|hymn|song)(?:[ _-]|$)", re.IGNORECASE)
_TOC = re.compile(r"(?:^| )(?:toc|doc-toc|landmarks|page-list|doc-pagelist|index|doc-index)(?: |$)")
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_PAGE_WORD = re.compile(r"^(?:page|pg|p|seite|s)\.?[\s_-]*(?=[\divxlcdm])|^[\[({]|[\])}]$", re.IGNORECASE)


@dataclass
class PageCounter:
    """The page that the reader is on; runs on over the files of a book."""

    index: int | None = None
    label: str | None = None

    def turn(self, label: str | None) -> None:
        self.index = 0 if self.index is None else self.index + 1
        self.label = label


@dataclass(frozen=True, slots=True)
class _Frame:
    """What an element passes on to what is inside it."""

    tag: str
    kind: BlockKind = "paragraph"
    language: str | None = None
    anchor: str | None = None
    is_block: bool = False
    keep_lines: bool = False
    heading: int | None = None
    in_notes: bool = False
    table: LexborNode | None = None
    closing: str = ""


@dataclass
class BlockExtractor:
    """Walks one file; *sections*, *pages* and *notes* may be shared by the files of a book."""

    file: str = ""
    sections: Sections = field(default_factory=Sections)
    pages: PageCounter = field(default_factory=PageCounter)
    notes: NoteIndex = field(default_factory=NoteIndex)
    page_labels: Mapping[Target, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    _inline: InlineText = field(default_factory=InlineText)
    _started_on: tuple[int | None, str | None] = (None, None)
    _turn_to: list[str | None] = field(default_factory=list)
    _holders: dict[int, str] = field(default_factory=dict)
    _labelled: set[str] = field(default_factory=set)

    def run(self, root: LexborNode, language: str | None = None) -> list[Block]:
        """The blocks below *root*, in document order and without recursion (pages can nest 100,000 deep)."""
        self._find_holders(root)
        frames = [_Frame("", language=language)]
        opened: list[LexborNode] = []
        node: LexborNode | None = root
        while node is not None:
            if self._enter(node, frames):
                child = node.child
                if child is not None:
                    opened.append(node)
                    node = child
                    continue
                self._leave(frames)
            while node.next is None or not opened:
                if not opened:
                    self._flush(frames[0])
                    self._turn_pages()
                    return self.blocks
                node = opened.pop()
                self._leave(frames)
            node = node.next
        return self.blocks

    def _find_holders(self, root: LexborNode) -> None:
        """Which blocks are notes, by the identity of their node: the id may sit on an anchor inside."""
        self.notes.new_tree()
        for node in root.css("[id], a[name]") if self.notes.labels else ():
            anchor = self.notes.anchor_at(self.file, attributes(node), node.tag or "")
            holder = self.notes.holder(node) if anchor else None
            if holder is not None and anchor:
                self._holders.setdefault(holder.mem_id, anchor)

    def _enter(self, node: LexborNode, frames: list[_Frame]) -> bool:
        """Whether to go into *node*; then its frame has been pushed."""
        frame = frames[-1]
        tag = node.tag or ""
        if tag == "-text":
            self._text(node.text_content or "", frame)
            return False
        if tag.startswith("-") or tag in _SKIPPED:
            return False
        attrs = attributes(node)
        types = semantics(attrs)
        if _is_hidden(attrs) or _TOC.search(types):
            return False
        if _PAGE_BREAK.search(types) or (self.page_labels and (self.file, attrs.get("id", "")) in self.page_labels):
            self._page_break(node, attrs, frame)
            if _PAGE_BREAK.search(types):
                return False
        if self._take_void(tag, attrs, frame) or (tag == "a" and self._take_link(node, attrs, frame)):
            return False
        frames.append(self._frame_for(node, tag, attrs, types, frame))
        return True

    def _take_void(self, tag: str, attrs: Mapping[str, str], frame: _Frame) -> bool:
        if tag == "br":
            self._inline.add(" " if frame.heading else "\n")
        elif tag == "hr":
            self._flush(frame)
        elif tag == "img":
            self._text(attrs.get("alt", ""), frame)
        else:
            return False
        return True

    def _take_link(self, node: LexborNode, attrs: Mapping[str, str], frame: _Frame) -> bool:
        """Marks and back-links leave no text; every other link is read like plain text."""
        target = target_of(attrs.get("href", ""), self.file)
        text = node.text()[:40]
        if target is None:
            return frame.anchor is not None and is_backlink(attrs, text)
        label = self.notes.labels.get(target)
        if label and label != frame.anchor:
            self._start()
            self._inline.mark(label)
            return True
        return is_backlink(attrs, text) or (frame.anchor is not None and _is_label(text, frame.anchor))

    def _frame_for(self, node: LexborNode, tag: str, attrs: Mapping[str, str], types: str, outer: _Frame) -> _Frame:
        language = attrs.get("lang") or attrs.get("xml:lang") or outer.language
        is_block = tag in _BLOCK_TAGS and not outer.heading
        if is_block and outer.table is None:
            self._flush(outer)
        elif outer.heading and tag in _BLOCK_TAGS and self._inline:
            self._inline.add("\n")
        frame = replace(outer, tag=tag, language=language, is_block=is_block, closing="")
        if outer.table is not None:
            return self._cell(tag, frame)
        if tag == "q":
            self._text("“", frame)
            return replace(frame, closing="”")
        return self._block_frame(node, tag, attrs, types, frame) if is_block else frame

    def _block_frame(self, node: LexborNode, tag: str, attrs: Mapping[str, str], types: str, frame: _Frame) -> _Frame:
        anchor = self._holders.get(node.mem_id)
        if anchor:
            frame = replace(frame, anchor=anchor, kind="note")
        if _NOTES_SECTION.search(f"{types} {attrs.get('class', '').lower()}"):
            frame = replace(frame, in_notes=True)
        if tag in _HEADINGS:
            return replace(frame, heading=_heading_level(node, tag))
        if _VERSE.search(f"{types} {attrs.get('class', '')}"):
            return replace(frame, kind="verse", keep_lines=True)
        if tag in _KINDS and frame.kind != "verse":
            return replace(frame, kind=_KINDS[tag], keep_lines=tag == "pre")
        if tag == "table" and _is_data_table(node):
            return replace(frame, kind="table", keep_lines=True, table=node)
        return frame

    def _cell(self, tag: str, frame: _Frame) -> _Frame:
        if tag in {"tr", "caption"}:
            self._inline.add("\n")
        return replace(frame, closing=" | ") if tag in {"td", "th"} else frame

    def _leave(self, frames: list[_Frame]) -> None:
        frame = frames.pop()
        outer = frames[-1]
        if frame.table is not None and outer.table is not None:
            self._inline.add(frame.closing)
            return
        if frame.closing:
            self._text(frame.closing, frame)
        if frame.is_block:
            self._flush(frame)

    def _text(self, text: str, frame: _Frame) -> None:
        if not text:
            return
        if frame.kind == "verse" and self._inline.last == "\n":
            text = text.lstrip()
        # Headings and tables aren't cut; their page turns when they end.
        turning = bool(self._turn_to) and not frame.heading and frame.table is None
        if turning and text[:1].isspace():
            self._flush(frame)
            self._turn_pages()
        elif turning:
            head, space, text = _first_word(text)
            self._inline.add(head)
            if not space:
                return
            self._flush(frame)
            self._turn_pages()
        self._start()
        # White space in the source is layout, except where lines were written as lines.
        self._inline.add(text if frame.keep_lines and frame.kind == "code" else re.sub(r"\s{2,}|[^\S ]", " ", text))

    def _start(self) -> None:
        if not self._inline:
            self._started_on = (self.pages.index, self.pages.label)

    def _page_break(self, node: LexborNode, attrs: Mapping[str, str], frame: _Frame) -> None:
        """A page that ends within a word ends after it."""
        label = self.page_labels.get((self.file, attrs.get("id", ""))) or _page_label(node, attrs)
        if not self._inline.last.strip():
            if not frame.heading and frame.table is None:
                self._flush(frame)
            self._turn_pages()
            self.pages.turn(label)
        else:
            self._turn_to.append(label)

    def _turn_pages(self) -> None:
        for label in self._turn_to:
            self.pages.turn(label)
        self._turn_to = []

    def _flush(self, frame: _Frame) -> None:
        inline, self._inline = self._inline, InlineText()
        index, label = self._started_on
        if not inline:
            self._turn_pages()
            return
        if frame.table is not None:
            text, marks = _finish_table(inline)
        elif frame.heading:
            text, marks = _finish_heading(inline)
        else:
            text, marks = inline.finish(keep_lines=frame.keep_lines)
        self._turn_pages()
        if not text or (frame.heading and frame.in_notes):
            return
        block = Block(
            text,
            frame.kind,
            page_index=index,
            page_label=label,
            page_label_confidence=1.0 if label else None,
            language=frame.language,
            marks=marks,
        )
        self._append(block, frame)

    def _append(self, block: Block, frame: _Frame) -> None:
        if frame.anchor is not None:
            block = self._as_note(block, frame.anchor)
        elif frame.heading:
            self.sections.enter(frame.heading, block.text)
            block = replace(block, kind="heading", heading_level=frame.heading)
        self.blocks.append(replace(block, section_path=self.sections.path))

    def _as_note(self, block: Block, anchor: str) -> Block:
        text = block.text
        if anchor not in self._labelled:
            self._labelled.add(anchor)
            text = strip_label(text, anchor.partition("~")[0])
        shift = len(block.text) - len(text)
        marks = tuple((label, max(0, offset - shift)) for label, offset in block.marks)
        return replace(
            block, text=text, kind="note", layer="note", anchor=anchor, marks=marks, note_author=note_author(text)
        )


def _is_hidden(attrs: Mapping[str, str]) -> bool:
    if "hidden" in attrs or attrs.get("aria-hidden") == "true":
        return True
    return bool(_HIDDEN_STYLE.search(attrs.get("style", "")))


def _is_label(text: str, anchor: str) -> bool:
    return normalise_prose(text).strip("[](). ") == anchor.partition("~")[0]


def _heading_level(node: LexborNode, tag: str) -> int:
    if tag != "hgroup":
        return int(tag[1])
    first = node.css_first("h1, h2, h3, h4, h5, h6")
    return int(first.tag[1]) if first is not None and first.tag else 2


def _is_data_table(node: LexborNode) -> bool:
    """A table for layout holds paragraphs, headings or other tables; its cells are read as text."""
    return node.css_first("table table, h1, h2, h3, h4, h5, h6, p + p, div + div, blockquote") is None


def _finish_table(inline: InlineText) -> tuple[str, tuple[tuple[str, int], ...]]:
    text, marks = inline.finish(keep_lines=True)
    rows = (re.sub(r"[ \t]+", " ", row).strip().rstrip("| ") for row in text.split("\n"))
    tidy = "\n".join(row for row in rows if row)
    return tidy, tuple((label, min(offset, len(tidy))) for label, offset in marks)


def _finish_heading(inline: InlineText) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The parts of a grouped heading (number, title) on one line."""
    text, marks = inline.finish(keep_lines=True)
    moved = tuple((label, offset + text.count("\n", 0, offset)) for label, offset in marks)
    return text.replace("\n", ": "), moved


def _page_label(node: LexborNode, attrs: Mapping[str, str]) -> str | None:
    text = node.text()[:40]
    named = attrs.get("title") or attrs.get("aria-label") or text or attrs.get("id", "")
    return _PAGE_WORD.sub("", normalise_prose(named)).strip(" ._-[]") or None


def _first_word(text: str) -> tuple[str, bool, str]:
    """What belongs to the word that a page break cut, whether it ended here, and the rest."""
    found = re.search(r"\s", text)
    return (text[: found.start()], True, text[found.start() :]) if found else (text, False, "")
