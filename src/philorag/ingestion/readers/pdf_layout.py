"""From printed lines to paragraphs, headings and footnotes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from philorag.ingestion.normalise import normalise_prose
from philorag.ingestion.readers.assembly import Anchors, InlineText, Sections, note_author, strip_label
from philorag.ingestion.readers.lines import Joiner
from philorag.model.blocks import Block

if TYPE_CHECKING:
    from philorag.ingestion.readers.pdf_lines import Line
    from philorag.ingestion.readers.pdf_pages import PageLabel

__all__ = ["Layout", "Outline", "body_size"]

Outline = Mapping[int, Sequence[tuple[int, str]]]
"""Bookmarks by page index: level from 1, and title."""

_NOTE_SIZE = 0.93
_HEADING_SIZE = 1.15
_SAME_SIZE = 0.12
_PARAGRAPH_PITCH = 1.35
_INDENT = 0.6
_SHORT_LINE = 0.2
_MAX_HEADING_LINES = 3
_MAX_HEADING = 200
_MAX_BOLD_HEADING = 100
_DROP_CAP = 1.6
_NOTE_START = re.compile(r"\s*[\[(]?(\d{1,3}|[*†‡§¶‖]{1,3})[\])]?[.)]?\s*(?=[^\d\s.,])")
_ENDS_SENTENCE = re.compile(r"[.!?:;…][\"'”’»)\]]*$")
_MARK = "\x01"


def body_size(pages: Iterable[Sequence[Line]]) -> float:
    """The size in which most of the text is set."""
    weights: Counter[float] = Counter()
    for lines in pages:
        for line in lines:
            weights[round(line.size * 2) / 2] += len(line.text)
    return weights.most_common(1)[0][0] if weights else 0.0


@dataclass
class Layout:
    """Turns pages without running lines into blocks, page after page."""

    pages: Sequence[Sequence[Line]]
    size: float
    labels: Sequence[PageLabel | None]
    outline: Outline
    sections: Sections = field(default_factory=Sections)
    anchors: Anchors = field(default_factory=Anchors)
    _open_note: str | None = None

    def __post_init__(self) -> None:
        self.joiner = Joiner(line.text for lines in self.pages for line in lines)
        self.pitch = _usual_pitch(self.pages, self.size)
        larger = {round(line.size) for lines in self.pages for line in lines if line.size >= _HEADING_SIZE * self.size}
        self.ranks = {size: rank for rank, size in enumerate(sorted(larger, reverse=True), start=1)}

    def blocks(self) -> Iterator[Block]:
        for index, lines in enumerate(self.pages):
            yield from self._page(index, _with_drop_caps(lines, self.size))

    def _page(self, index: int, lines: Sequence[Line]) -> Iterator[Block]:
        label, confidence = self.labels[index] or (None, None)
        page = Block("", page_index=index, page_label=label, page_label_confidence=confidence)
        main, notes = self._split_notes(lines)
        anchors = {found: self.anchors.unique(found) for found, _ in notes if found}
        titles = {_folded(title): (level, title) for level, title in self.outline.get(index, ())}
        paragraphs = list(self._paragraphs(main))
        self._enter_unprinted(titles, paragraphs)
        for paragraph in paragraphs:
            yield from self._main_block(paragraph, page, anchors, titles)
        for found, group in notes:
            yield from self._note_block(found, group, page, anchors)

    def _enter_unprinted(self, titles: Mapping[str, tuple[int, str]], paragraphs: Sequence[Sequence[Line]]) -> None:
        """Bookmarks whose title isn't printed on their page hold from its beginning."""
        printed = {_folded(self.joiner.join(line.text for line in paragraph)) for paragraph in paragraphs}
        for folded, (level, title) in titles.items():
            if folded and folded not in printed:
                self.sections.enter(level, title)

    def _main_block(
        self, lines: Sequence[Line], page: Block, anchors: Mapping[str, str], titles: Mapping[str, tuple[int, str]]
    ) -> Iterator[Block]:
        text, marks = self._text(lines, anchors)
        if not text:
            return
        level = self._heading_level(lines, text, titles)
        if level:
            self.sections.enter(level, text)
        yield replace(
            page,
            text=text,
            marks=marks,
            kind="heading" if level else "paragraph",
            heading_level=level,
            section_path=self.sections.path,
        )

    def _note_block(
        self, label: str | None, lines: Sequence[Line], page: Block, anchors: Mapping[str, str]
    ) -> Iterator[Block]:
        text, _ = self._text(lines, {})
        if label:
            raised = lines[0].raised[:1] == ((0, len(label)),)
            text = text.removeprefix(label).lstrip(" .)") if raised else strip_label(text, label)
            self._open_note = anchors[label]
        if text:
            yield replace(
                page,
                text=text,
                kind="note",
                layer="note",
                anchor=self._open_note,
                section_path=self.sections.path,
                note_author=note_author(text),
            )

    def _text(self, lines: Sequence[Line], anchors: Mapping[str, str]) -> tuple[str, tuple[tuple[str, int], ...]]:
        """Joined lines, with the raised signs that have a note on this page taken out as marks."""
        labels: list[str] = []
        marked = [_marked(line, anchors, labels) for line in lines]
        inline = InlineText()
        first, *rest = self.joiner.join(marked).split(_MARK)
        inline.add(first)
        for label, part in zip(labels, rest, strict=True):
            inline.mark(label)
            inline.add(part)
        return inline.finish()

    def _heading_level(self, lines: Sequence[Line], text: str, titles: Mapping[str, tuple[int, str]]) -> int | None:
        bookmarked = titles.get(_folded(text))
        if bookmarked:
            return bookmarked[0]
        if len(lines) > _MAX_HEADING_LINES or len(text) > _MAX_HEADING or not any(char.isalpha() for char in text):
            return None
        size = median(line.size for line in lines)
        if size >= _HEADING_SIZE * self.size:
            return min(6, self.ranks.get(round(size), 1))
        stands_out = all(line.bold for line in lines) and len(text) <= _MAX_BOLD_HEADING
        return min(6, len(self.ranks) + 1) if stands_out and not _ENDS_SENTENCE.search(text) else None

    def _split_notes(self, lines: Sequence[Line]) -> tuple[Sequence[Line], list[tuple[str | None, list[Line]]]]:
        """The lines of the text, and the notes at the foot: label and lines of each."""
        start = len(lines)
        while start and lines[start - 1].size <= _NOTE_SIZE * self.size:
            start -= 1
        small = lines[start:]
        marks = {line.text[begin:end] for line in lines[:start] for begin, end in line.raised}
        groups: list[tuple[str | None, list[Line]]] = []
        for line in small:
            label = _note_label(line, marks)
            if label and label not in {known for known, _ in groups}:
                groups.append((label, [line]))
            elif groups:
                groups[-1][1].append(line)
            else:
                groups.append((None, [line]))
        if not any(label for label, _ in groups):
            return lines, []
        if groups[0][0] is None and self._open_note is None:
            return [*lines[:start], *groups[0][1]], groups[1:]
        return lines[:start], groups

    def _paragraphs(self, lines: Sequence[Line]) -> Iterator[list[Line]]:
        edge = max((line.right for line in lines), default=0.0)
        paragraph: list[Line] = []
        for line in lines:
            if paragraph and self._breaks(paragraph, line, edge):
                yield paragraph
                paragraph = []
            paragraph.append(line)
        if paragraph:
            yield paragraph

    def _breaks(self, paragraph: Sequence[Line], line: Line, edge: float) -> bool:
        previous = paragraph[-1]
        if abs(line.size - previous.size) > _SAME_SIZE * previous.size or _changes_weight(previous, line, self.size):
            return True
        ended = bool(_ENDS_SENTENCE.search(previous.text))
        pitch = previous.bottom - line.bottom
        if pitch < -previous.size / 2:
            return ended
        if pitch < previous.size / 2:
            return False
        if pitch > _PARAGRAPH_PITCH * max(self.pitch, line.size if not self.pitch else 0):
            return True
        step = (line.left - previous.left) / line.size
        if step > _INDENT or (step < -_INDENT and len(paragraph) > 1):
            return True
        width = edge - min(previous.left, line.left)
        return ended and previous.right < edge - _SHORT_LINE * width


def _usual_pitch(pages: Sequence[Sequence[Line]], size: float) -> float:
    """The usual distance from line to line of the text."""
    distances = [
        above.bottom - below.bottom
        for lines in pages
        for above, below in pairwise(lines)
        if abs(above.size - size) < 1 and abs(below.size - size) < 1 and 0 < above.bottom - below.bottom < 3 * size
    ]
    return median(distances) if distances else 1.2 * size


def _changes_weight(previous: Line, line: Line, size: float) -> bool:
    """A bold line that stands alone is a heading; bold words at the end of a line are not."""
    return previous.bold != line.bold and (previous.bold or line.size >= size)


def _with_drop_caps(lines: Sequence[Line], size: float) -> list[Line]:
    """An initial several lines high goes back to its word."""
    joined: list[Line] = []
    initial = ""
    for line in lines:
        if len(line.text) == 1 and line.text.isalpha() and line.size > _DROP_CAP * size:
            initial = line.text
            continue
        shift = len(initial)
        raised = tuple((begin + shift, end + shift) for begin, end in line.raised)
        joined.append(replace(line, text=initial + line.text, raised=raised) if initial else line)
        initial = ""
    return joined


def _marked(line: Line, anchors: Mapping[str, str], labels: list[str]) -> str:
    pieces = []
    position = 0
    for begin, end in line.raised:
        label = line.text[begin:end]
        if label in anchors:
            pieces += [line.text[position:begin], _MARK]
            labels.append(anchors[label])
            position = end
    return "".join([*pieces, line.text[position:]])


def _note_label(line: Line, marks: set[str]) -> str | None:
    """What a note begins with: a raised sign, or a number that is a mark on this page."""
    if line.raised and line.raised[0][0] == 0:
        return line.text[: line.raised[0][1]]
    found = _NOTE_START.match(line.text)
    return found[1] if found and (found[1] in marks or not found[1].isdigit()) else None


def _folded(text: str) -> str:
    return re.sub(r"\W+", "", normalise_prose(text).casefold())
