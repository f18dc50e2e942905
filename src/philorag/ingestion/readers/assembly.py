"""What all readers build with: inline text with marks, the headings above, and the finished document."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from philorag.errors import ProcessingError
from philorag.ingestion.normalise import clean, normalise_lines, normalise_prose

if TYPE_CHECKING:
    from philorag.model.blocks import Block, NoteAuthor

__all__ = [
    "Anchors",
    "InlineText",
    "Sections",
    "as_date",
    "json_mapping",
    "note_author",
    "place_notes",
    "require_text",
    "strip_label",
]

_CLOSING = re.compile(r"[.,;:!?)\]}»”’]")
_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?(?![\d-])")
_NOTE_AUTHORS: tuple[tuple[NoteAuthor, re.Pattern[str]], ...] = (
    ("editor", re.compile(r"(?:[—–\[(]|--|\.-)\s*(?:Eds?|Editor)\.?\s*[\])]?$")),
    ("translator", re.compile(r"(?:[—–\[(]|--|\.-)\s*(?:Tr|Trans|Transl|Translator)\.?\s*[\])]?$")),
)
_MAX_METADATA_VALUES = 5_000
_MAX_METADATA_DEPTH = 16


class InlineText:
    """Collects pieces of one block; note marks keep their place but leave no character."""

    def __init__(self) -> None:
        self._segments: list[list[str]] = [[]]
        self._labels: list[str] = []

    def add(self, text: str) -> None:
        self._segments[-1].append(text)

    def mark(self, label: str) -> None:
        self._labels.append(label)
        self._segments.append([])

    def __bool__(self) -> bool:
        return bool(self._labels) or any(piece.strip() for segment in self._segments for piece in segment)

    @property
    def last(self) -> str:
        """The last character so far, since the last mark."""
        return self._segments[-1][-1][-1:] if self._segments[-1] else ""

    def finish(self, *, keep_lines: bool = False) -> tuple[str, tuple[tuple[str, int], ...]]:
        """The normalised text and its marks as `(label, offset in text)`."""
        raw = ["".join(segment) for segment in self._segments]
        form = normalise_lines if keep_lines else normalise_prose
        if not self._labels:
            return form(raw[0]), ()
        text, offsets = _join_segments([_loosely(part, keep_lines=keep_lines) for part in raw])
        final = form(text)
        lead = len(text) - len(text.lstrip())
        if final == text.strip():
            offsets = [
                len(text[max(0, offset - 2) : offset].rstrip()) + max(0, offset - 2) - lead for offset in offsets
            ]
        else:
            offsets = [len(form(text[:offset])) for offset in offsets]
        placed = (min(max(offset, 0), len(final)) for offset in offsets)
        return final, tuple(zip(self._labels, placed, strict=True))


def _loosely(part: str, *, keep_lines: bool) -> str:
    return clean(part) if keep_lines else re.sub(r"\s{2,}|[^\S ]", " ", clean(part))


def _join_segments(parts: Sequence[str]) -> tuple[str, list[int]]:
    text = parts[0]
    offsets = []
    for part in parts[1:]:
        if text[-1:].isspace():
            following = part.lstrip(" ")
            text = text.rstrip(" ") if _CLOSING.match(following) else text
            part = following  # noqa: PLW2901 - what is left of it
        offsets.append(len(text))
        text += part
    return unicodedata.normalize("NFC", text), offsets


class Sections:
    """The headings above the place that the reader is at."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open)

    def enter(self, level: int, title: str) -> None:
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        self._open.append((level, title))


class Anchors:
    """Unique labels: the second note `5` of a book becomes `5~2`."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def unique(self, label: str) -> str:
        label = normalise_prose(label) or "note"
        count = self._used.get(label, 0) + 1
        self._used[label] = count
        if count == 1:
            return label
        return self.unique(f"{label}~{count}") if f"{label}~{count}" in self._used else f"{label}~{count}"


def strip_label(text: str, label: str) -> str:
    """*text* of a note without the label that it opens with: `[1]`, `1.`, `1)`, `*`."""
    opening = re.compile(rf"[\[(]?{re.escape(label)}(?:[\])][.:]?|[.:)]|(?!\w))\s*")
    found = opening.match(text)
    return text[found.end() :] if found and found.end() < len(text) else text


def note_author(text: str) -> NoteAuthor | None:
    """Who signed the note (`—Ed.`, `[Tr.]`), when somebody did."""
    tail = text[-40:]
    return next((author for author, pattern in _NOTE_AUTHORS if pattern.search(tail)), None)


def place_notes(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Notes take the section path of the passage that refers to them; marks without a note are dropped."""
    blocks = tuple(blocks)
    anchors = {block.anchor for block in blocks if block.layer == "note"}
    paths: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        for label, _ in block.marks:
            paths.setdefault(label, block.section_path)
    return tuple(_placed(block, anchors, paths) for block in blocks)


def _placed(block: Block, anchors: AbstractSet[str | None], paths: Mapping[str, tuple[str, ...]]) -> Block:
    marks = tuple(mark for mark in block.marks if mark[0] in anchors)
    path = paths.get(block.anchor) if block.layer == "note" and block.anchor else None
    if path is None and marks == block.marks:
        return block
    return replace(block, marks=marks, section_path=block.section_path if path is None else path)


def require_text(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """The blocks, unless there are none: then the document is `empty`."""
    blocks = tuple(blocks)
    if not blocks:
        raise ProcessingError("The document has no text.", reason="empty")
    return blocks


def as_date(value: object) -> str | None:
    """`YYYY`, `YYYY-MM` or `YYYY-MM-DD` from what a source declares; None when it isn't a date."""
    found = _DATE.match(str(value).strip().replace("/", "-")) if value is not None else None
    if not found:
        return None
    year, month, day = found.groups()
    if month and not 1 <= int(month) <= 12:  # noqa: PLR2004 - months
        return year
    return "-".join(part for part in (year, month, day) if part)


def json_mapping(values: Mapping[object, object]) -> dict[str, object]:
    """*values* as JSON; refuses what is nested or repeated beyond reason (YAML aliases can multiply)."""
    budget = [_MAX_METADATA_VALUES]
    return {str(key): _json_value(value, budget, 1) for key, value in values.items()}


def _json_value(value: object, budget: list[int], depth: int) -> object:
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_METADATA_DEPTH:
        raise ProcessingError("The metadata are too large or too deeply nested.", reason="too_large")
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Mapping):
        return {normalise_prose(str(key)): _json_value(item, budget, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_value(item, budget, depth + 1) for item in value]
    return normalise_lines(str(value))
