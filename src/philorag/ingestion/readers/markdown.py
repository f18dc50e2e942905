"""Markdown: CommonMark with tables, footnotes and YAML frontmatter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from philorag.errors import ProcessingError
from philorag.ingestion.decoding import decode_text
from philorag.ingestion.detection import MEDIA_TYPES
from philorag.ingestion.normalise import clean, normalise_lines, normalise_prose
from philorag.ingestion.readers.assembly import (
    Anchors,
    InlineText,
    Sections,
    as_date,
    json_mapping,
    note_author,
    place_notes,
    require_text,
)
from philorag.ingestion.readers.html import fragment_blocks
from philorag.model.blocks import Block, BlockKind, ReadDocument

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["read"]

_FRONTMATTER = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_NAMED_FIELDS = {"title", "author", "authors", "date", "language", "lang"}
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_HIDDEN_OPEN = re.compile(r"<(script|style)\b", re.IGNORECASE)
_HIDDEN_CLOSE = re.compile(r"</(script|style)\b", re.IGNORECASE)


def read(data: bytes) -> ReadDocument:
    meta, body = _split_frontmatter(clean(decode_text(data)))
    parser = MarkdownIt("commonmark").enable("table").use(footnote_plugin)
    blocks = _Assembler().run(parser.parse(body))
    language = _first(meta, "language", "lang")
    return ReadDocument(
        media_type=MEDIA_TYPES["markdown"],
        blocks=require_text(place_notes(blocks)),
        title=_first(meta, "title") or _top_heading(blocks),
        authors=_authors(meta),
        publication_date=as_date(meta.get("date")),
        language=language,
        metadata={key: value for key, value in meta.items() if key not in _NAMED_FIELDS},
    )


def _top_heading(blocks: Sequence[Block]) -> str | None:
    """The first heading, when it stands above all others."""
    headings = [block for block in blocks if block.kind == "heading" and block.heading_level]
    if not headings:
        return None
    top = min(block.heading_level or 0 for block in headings)
    tops = [block for block in headings if block.heading_level == top]
    return tops[0].text if tops[0] is headings[0] and (top == 1 or len(tops) == 1) else None


def _first(meta: Mapping[str, object], *names: str) -> str | None:
    return next((normalise_prose(str(meta[name])) for name in names if meta.get(name)), None)


def _authors(meta: Mapping[str, object]) -> tuple[str, ...]:
    value = meta.get("authors") or meta.get("author") or []
    entries = value if isinstance(value, list) else [value]
    names = (entry.get("name") if isinstance(entry, dict) else entry for entry in entries)
    return tuple(normalise_prose(str(name)) for name in names if name)


def _split_frontmatter(text: str) -> tuple[dict[str, object], str]:
    found = _FRONTMATTER.match(text)
    if not found:
        return {}, text
    try:
        loaded = YAML(typ="safe", pure=True).load(StringIO(found[1]))
    except (YAMLError, ValueError, RecursionError, TypeError, AttributeError) as exc:
        raise _malformed(exc) from exc
    if loaded is None:
        return {}, text[found.end() :]
    if not isinstance(loaded, Mapping):
        return {}, text
    return json_mapping(loaded), text[found.end() :]


def _malformed(exc: Exception) -> ProcessingError:
    mark = exc.problem_mark if isinstance(exc, MarkedYAMLError) else None
    line = (mark.line + 2) if mark else 1
    problem = (exc.problem if isinstance(exc, MarkedYAMLError) else None) or "not valid YAML"
    return ProcessingError(
        f"The frontmatter is malformed at line {line}: {normalise_prose(str(problem))}.", reason="corrupt", line=line
    )


@dataclass
class _Assembler:
    """Turns the token stream into blocks; knows where it stands."""

    sections: Sections = field(default_factory=Sections)
    anchors: Anchors = field(default_factory=Anchors)
    labels: dict[int, str] = field(default_factory=dict)
    containers: list[str] = field(default_factory=list)
    kinds: list[BlockKind] = field(default_factory=list)
    ordinal: str = ""
    note: str | None = None
    level: int | None = None
    rows: list[list[str]] = field(default_factory=list)
    row_marks: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def run(self, tokens: Sequence[Token]) -> list[Block]:
        for token in tokens:
            handle = getattr(self, f"_on_{token.type}", None)
            if handle:
                handle(token)
        return self.blocks

    def _emit(self, inline: InlineText, kind: BlockKind, *, keep_lines: bool = False) -> None:
        text, marks = inline.finish(keep_lines=keep_lines)
        if not text:
            return
        if self.level:
            self.sections.enter(self.level, text)
            self.blocks.append(
                Block(text, "heading", section_path=self.sections.path, heading_level=self.level, marks=marks)
            )
        elif self.note:
            author = note_author(text)
            self.blocks.append(
                Block(text, "note", "note", self.sections.path, anchor=self.note, marks=marks, note_author=author)
            )
        else:
            self.blocks.append(Block(text, kind, section_path=self.sections.path, marks=marks))

    def _on_heading_open(self, token: Token) -> None:
        # A heading inside a quotation or a list is no section of this document.
        self.level = None if self.kinds or self.note else int(token.tag[1])

    def _on_heading_close(self, _token: Token) -> None:
        self.level = None

    def _on_blockquote_open(self, _token: Token) -> None:
        self.kinds.append("quotation")

    def _on_blockquote_close(self, _token: Token) -> None:
        self.kinds.pop()

    def _on_list_item_open(self, token: Token) -> None:
        self.kinds.append("list_item")
        self.ordinal = f"{token.info}{token.markup} " if token.info else ""

    def _on_list_item_close(self, _token: Token) -> None:
        self.kinds.pop()
        self.ordinal = ""

    def _on_footnote_open(self, token: Token) -> None:
        self.note = self._anchor(token)

    def _on_footnote_close(self, _token: Token) -> None:
        self.note = None

    def _on_table_open(self, _token: Token) -> None:
        self.rows = []

    def _on_tr_open(self, _token: Token) -> None:
        self.rows.append([])

    def _on_table_close(self, _token: Token) -> None:
        inline = InlineText()
        inline.add("\n".join(" | ".join(row) for row in self.rows))
        for label in self.row_marks:
            inline.mark(label)
        self.rows, self.row_marks = [], []
        self._emit(inline, "table", keep_lines=True)

    def _on_inline(self, token: Token) -> None:
        inline = InlineText()
        inline.add(self.ordinal)
        self.ordinal = ""
        verse = _is_verse(token.children or [])
        self._render(token.children or [], inline, line_break="\n" if verse else " ")
        if self.rows:
            text, marks = inline.finish()
            self.rows[-1].append(text)
            self.row_marks.extend(label for label, _ in marks)
        else:
            kind: BlockKind = "verse" if verse else self.kinds[-1] if self.kinds else "paragraph"
            self._emit(inline, kind, keep_lines=verse)

    def _on_fence(self, token: Token) -> None:
        inline = InlineText()
        inline.add(normalise_lines(token.content))
        self._emit(inline, "code", keep_lines=True)

    _on_code_block = _on_fence

    def _on_html_block(self, token: Token) -> None:
        for block in fragment_blocks(token.content):
            inline = InlineText()
            inline.add(block.text)
            kind = "paragraph" if block.kind == "heading" else block.kind
            self._emit(inline, kind, keep_lines="\n" in block.text)

    def _anchor(self, token: Token) -> str:
        number: int = token.meta["id"]
        if number not in self.labels:
            self.labels[number] = self.anchors.unique(str(token.meta.get("label") or number + 1))
        return self.labels[number]

    def _render(self, children: Sequence[Token], inline: InlineText, line_break: str) -> None:
        hidden = False
        for child in _flattened(children):
            if child.type == "html_inline":
                hidden = bool(_HIDDEN_OPEN.match(child.content)) or (hidden and not _HIDDEN_CLOSE.match(child.content))
                inline.add(" " if _BREAK.match(child.content) else "")
            elif hidden:
                continue
            elif child.type == "footnote_ref":
                inline.mark(self._anchor(child))
            elif child.type in {"softbreak", "hardbreak"}:
                inline.add(line_break)
            elif child.type in {"text", "code_inline", "text_special"}:
                inline.add(child.content)


def _is_verse(children: Sequence[Token]) -> bool:
    """Whether every line of a paragraph ends in a hard break."""
    breaks = [child.type for child in children if child.type in {"softbreak", "hardbreak"}]
    return bool(breaks) and set(breaks) == {"hardbreak"}


def _flattened(children: Sequence[Token]) -> Iterator[Token]:
    """Images stand for their alternative text, which has tokens of its own."""
    pending = list(reversed(children))
    while pending:
        child = pending.pop()
        if child.type == "image":
            pending.extend(reversed(child.children or []))
        else:
            yield child
