"""Plain text: paragraphs, verse, headings and notes by how they are set out."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from philorag.ingestion.decoding import decode_text
from philorag.ingestion.detection import MEDIA_TYPES
from philorag.ingestion.normalise import clean
from philorag.ingestion.readers.assembly import (
    Anchors,
    InlineText,
    Sections,
    note_author,
    place_notes,
    require_text,
    strip_label,
)
from philorag.ingestion.readers.lines import Joiner, is_verse
from philorag.model.blocks import Block, BlockKind, ReadDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read"]

_MAX_HEADING = 80
_MAX_TITLE = 120
_LONG_LINE = 150
_QUOTE_INDENT = 4
_MIN_CAPITALS = 4
_UNDERLINE = re.compile(r"\s*(={3,}|-{3,}|~{3,}|\*{3,})\s*$")
_RULE = re.compile(r"[\s*_=~.·—-]+$")
_CHAPTER = re.compile(
    r"(?P<name>book|part|chapter|section|essay|letter|lecture|buch|teil|kapitel|abschnitt|livre|partie|chapitre|liber|"
    r"caput|libro|parte|capitolo)\s+(?:[ivxlcdm]+|\d+|the\s+(?:first|second|third|fourth|fifth|sixth|last)|"
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|prim[ao]|second[ao])\b[.:]?",
    re.IGNORECASE,
)
_DIVISIONS = {"book", "part", "buch", "teil", "livre", "partie", "liber", "libro", "parte"}
_NUMBERED = re.compile(r"(?P<number>\d{1,3}(?:\.\d{1,3})*)\.?\s+(?=[^\W\d_])(?P<title>.+)")
_ROMAN = re.compile(r"[IVXLC]+\.?(?:\s+[—–-]?\s*[A-Z].*)?$")
_SENTENCE_END = re.compile(r"[.,;:!?][\"'”’)]*$")
_BULLET = re.compile(r"\s*(?:[-*•‣–]|\(?\d{1,3}[.)])\s+")
_NOTE_HEADING = re.compile(r"(?:foot|end)?notes?\W*$|anmerkungen\W*$|fu(?:ß|ss)noten\W*$|remarques\W*$", re.IGNORECASE)
_NOTE_START = re.compile(r"\s*(?:\[(\d{1,4}|[*†‡§]{1,3})\]|(\d{1,4})[.)]|([*†‡§]{1,3}))\s+(?=\S)")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_MARK = re.compile(r"\[(\d{1,4}|[*†‡§]{1,3})\]|([⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})|(?<=[\w.,;:!?”’\"')])([*†‡§]{1,3})(?!\w)")


@dataclass(frozen=True, slots=True)
class _Paragraph:
    lines: tuple[str, ...]
    page: int | None

    @property
    def only_line(self) -> str | None:
        return self.lines[0].strip() if len(self.lines) == 1 else None


def read(data: bytes) -> ReadDocument:
    paragraphs = list(_paragraphs(decode_text(data)))
    body, notes = _split_notes(paragraphs)
    blocks = require_text(place_notes([*_main_blocks(body, notes), *_note_blocks(notes, body)]))
    first = blocks[0]
    title = first.text if first.kind == "heading" else None
    return ReadDocument(media_type=MEDIA_TYPES["plain"], blocks=blocks, title=title)


def _paragraphs(text: str) -> Iterator[_Paragraph]:
    """Form feeds are page breaks, as text extractors write them."""
    pages = text.split("\f")
    for index, page in enumerate(pages):
        lines: list[str] = []
        for line in [*clean(page).expandtabs(4).split("\n"), ""]:
            if line.strip():
                lines.append(line.rstrip())
            elif lines:
                yield from _as_paragraphs(lines, index if len(pages) > 1 else None)
                lines = []


def _as_paragraphs(lines: list[str], page: int | None) -> Iterator[_Paragraph]:
    if len(lines) > 1 and _UNDERLINE.match(lines[1]) and not _RULE.match(lines[0]):
        yield _Paragraph((lines[0], lines[1]), page)
        lines = lines[2:]
    if not lines or (len(lines) == 1 and _RULE.match(lines[0])):
        return
    if len(lines) > 1 and median(map(len, lines)) > _LONG_LINE:
        yield from (_Paragraph((line,), page) for line in lines)
    else:
        yield _Paragraph(tuple(lines), page)


def _main_blocks(paragraphs: list[_Paragraph], notes: dict[str, tuple[str, ...]]) -> Iterator[Block]:
    joiner = Joiner(line for paragraph in paragraphs for line in paragraph.lines)
    sections = Sections()
    widths = [max(map(len, entry.lines)) for entry in paragraphs if len(entry.lines) > 1]
    width = median(widths) if widths else 0
    margin = min((_indent(line) for paragraph in paragraphs for line in paragraph.lines), default=0)
    for index, paragraph in enumerate(paragraphs):
        following = paragraphs[index + 1] if index + 1 < len(paragraphs) else None
        heading = _heading(paragraph, following, first=index == 0)
        for block in _paragraph_blocks(paragraph, heading, joiner, margin, width):
            marked = _with_marks(block, notes)
            if not marked.text:
                continue
            if heading:
                sections.enter(heading, marked.text)
            yield replace(marked, section_path=sections.path)


def _paragraph_blocks(
    paragraph: _Paragraph, heading: int | None, joiner: Joiner, margin: int, width: float
) -> Iterator[Block]:
    lines, page = paragraph.lines, paragraph.page
    if heading:
        yield Block(lines[0].strip(), "heading", heading_level=heading, page_index=page)
    elif _BULLET.match(lines[0]) and (len(lines) == 1 or any(_BULLET.match(line) for line in lines[1:])):
        for item in _grouped(lines, _BULLET):
            yield Block(joiner.join(item), "list_item", page_index=page)
    elif is_verse([line.strip() for line in lines], width):
        yield Block("\n".join(line[margin:] for line in lines), "verse", page_index=page)
    else:
        yield Block(joiner.join(_unquoted(lines)), _prose_kind(lines, margin), page_index=page)


def _prose_kind(lines: tuple[str, ...], margin: int) -> BlockKind:
    indented = len(lines) > 1 and all(_indent(line) - margin >= _QUOTE_INDENT for line in lines)
    return "quotation" if indented or _unquoted(lines) != list(lines) else "paragraph"


def _unquoted(lines: tuple[str, ...]) -> list[str]:
    if all(line.lstrip().startswith(">") for line in lines):
        return [line.lstrip().lstrip("> ") for line in lines]
    return list(lines)


def _grouped(lines: tuple[str, ...], start: re.Pattern[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for line in lines:
        if group and start.match(line):
            yield group
            group = []
        group.append(line)
    yield group


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _heading(paragraph: _Paragraph, following: _Paragraph | None, *, first: bool) -> int | None:
    """The level of a heading, or None; in doubt None."""
    lines = paragraph.lines
    if len(lines) == 2 and _UNDERLINE.match(lines[1]) and len(lines[0].strip()) <= _MAX_TITLE:  # noqa: PLR2004 - it and its line
        return 1 if lines[1].strip()[0] == "=" else 2
    line = paragraph.only_line
    if line is None or len(line) > _MAX_TITLE:
        return None
    if first:
        return 1 if following and not _SENTENCE_END.search(line) and not _BULLET.match(line) else None
    return _titled(line, following) if len(line) <= _MAX_HEADING else None


def _titled(line: str, following: _Paragraph | None) -> int | None:
    chapter = _CHAPTER.match(line)
    if chapter and (chapter.end() == len(line) or not _SENTENCE_END.search(line)) and line[0].isupper():
        return 1 if chapter["name"].lower() in _DIVISIONS else 2
    if _is_capitals(line) or _ROMAN.fullmatch(line):
        return 2
    numbered = _NUMBERED.fullmatch(line)
    if numbered and numbered["title"][0].isupper() and not _SENTENCE_END.search(line) and not _is_list(following):
        return 2 + numbered["number"].count(".")
    return None


def _is_list(following: _Paragraph | None) -> bool:
    return following is None or bool(_NUMBERED.match(following.lines[0].strip()))


def _is_capitals(line: str) -> bool:
    letters = [char for char in line if char.isalpha()]
    return len(letters) >= _MIN_CAPITALS and all(char.isupper() for char in letters) and line[-1] not in ",;"


def _split_notes(paragraphs: list[_Paragraph]) -> tuple[list[_Paragraph], dict[str, tuple[str, ...]]]:
    """The trailing run of note paragraphs, when the text before it really has their marks."""
    start = len(paragraphs)
    while start and _NOTE_START.match(paragraphs[start - 1].lines[0]):
        start -= 1
    groups = [tuple(group) for entry in paragraphs[start:] for group in _grouped(entry.lines, _NOTE_START)]
    notes = {_label(group[0]): group for group in groups}
    if not notes or len(notes) < len(groups):
        return paragraphs, {}
    body = paragraphs[:start]
    marked = {_mark_label(mark) for entry in body for line in entry.lines for mark in _MARK.finditer(line)}
    if not notes.keys() <= marked:
        return paragraphs, {}
    if body and body[-1].only_line and _NOTE_HEADING.match(body[-1].only_line):
        body = body[:-1]
    return body, notes


def _label(line: str) -> str:
    found = _NOTE_START.match(line)
    return (found[1] or found[2] or found[3]) if found else ""


def _mark_label(mark: re.Match[str]) -> str:
    return mark[1] or mark[3] or mark[2].translate(_SUPERSCRIPTS)


def _with_marks(block: Block, notes: dict[str, tuple[str, ...]]) -> Block:
    inline = InlineText()
    position = 0
    for mark in _MARK.finditer(block.text) if notes else ():
        if _mark_label(mark) in notes:
            inline.add(block.text[position : mark.start()])
            inline.mark(_mark_label(mark))
            position = mark.end()
    inline.add(block.text[position:])
    text, marks = inline.finish(keep_lines=block.kind == "verse")
    return replace(block, text=text, marks=marks)


def _note_blocks(notes: dict[str, tuple[str, ...]], body: list[_Paragraph]) -> Iterator[Block]:
    joiner = Joiner(line for entry in body for line in entry.lines)
    anchors = Anchors()
    for label, lines in notes.items():
        inline = InlineText()
        inline.add(strip_label(joiner.join(lines), label))
        text, _ = inline.finish()
        if text:
            yield Block(text, "note", "note", anchor=anchors.unique(label), note_author=note_author(text))
