"""What is printed on every page: running heads and feet, and the page numbers in them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from philorag.ingestion.readers.pdf_lines import Line

__all__ = ["PageLabel", "infer_labels", "without_running_lines"]

PageLabel = tuple[str, float]
"""A printed page number and how sure it is, 0..1."""

_Number = tuple[str, int]
_MIN_REPEATS = 3
_MARGIN_ROWS = 2
_HEADING_SIZE = 1.1
_READ = 0.95
_BETWEEN = 0.8
_ALONE = re.compile(
    r"[\[(\u2014\u2013\-\s]*(?:p(?:age|\.)?\s*)?(\d{1,4}|[ivxlcdm]{1,9})(?:\s*(?:of|/)\s*\d+)?[\])\u2014\u2013\-\s.]*",
    re.IGNORECASE,
)
_AT_AN_END = re.compile(r"(\d{1,4})\s+\D.*|.*\D\s+(\d{1,4})")
_NUMBERS = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
_ROMAN_DIGITS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}


def without_running_lines(pages: Sequence[Sequence[Line]], body_size: float) -> list[list[Line]]:
    """The pages without lines that stand, but for their numbers, in the margin of at least three pages.

    The second row counts only where the outermost one is running: it may be the text.
    """
    trusted = _trusted(pages)
    dropped: set[int] = set()
    for depth in range(_MARGIN_ROWS):
        places: defaultdict[tuple[str, str], list[Line]] = defaultdict(list)
        for lines in pages:
            for zone, row in _margins(lines):
                if len(row) > depth and all(id(line) in dropped for outer in row[:depth] for line in outer):
                    for line in row[depth]:
                        if line.size <= _HEADING_SIZE * body_size and not _is_note(zone, line, trusted):
                            places[zone, _pattern(line)].append(line)
        for found in places.values():
            if len({line.page for line in found}) >= _MIN_REPEATS:
                dropped.update(map(id, found))
    return [[line for line in lines if id(line) not in dropped] for lines in pages]


def _is_note(zone: str, line: Line, trusted: set[_Number]) -> bool:
    """`12 Ibid.` is printed at many feet, but its number doesn't run along with the pages."""
    if zone == "head":
        return False
    if line.raised and line.raised[0][0] == 0:
        return True
    leading = _AT_AN_END.fullmatch(line.text.strip())
    return bool(leading and leading[1] and ("arabic", int(leading[1]) - line.page) not in trusted)


def _trusted(pages: Sequence[Sequence[Line]]) -> set[_Number]:
    votes = Counter(offset for page, lines in enumerate(pages) for offset in _offsets(lines, page))
    return {offset for offset, count in votes.items() if count >= _MIN_REPEATS}


def _offsets(lines: Sequence[Line], page: int) -> set[_Number]:
    return {(style, value - page) for style, value in _numbers(lines)}


def infer_labels(pages: Sequence[Sequence[Line]]) -> list[PageLabel | None]:
    """Page numbers that run along with the pages; the same distance on three pages is no accident."""
    trusted = _trusted(pages)
    best = [max(_offsets(lines, page) & trusted, default=None) for page, lines in enumerate(pages)]
    following: list[_Number | None] = [None] * len(best)
    for page in range(len(best) - 2, -1, -1):
        following[page] = best[page + 1] or following[page + 1]
    labels: list[PageLabel | None] = []
    before: _Number | None = None
    for page, offset in enumerate(best):
        before = offset or before
        if offset:
            labels.append((_printed(offset, page), _READ))
        else:
            labels.append((_printed(before, page), _BETWEEN) if before and before == following[page] else None)
    return labels


def _margins(lines: Sequence[Line]) -> Iterator[tuple[str, list[list[Line]]]]:
    """The outermost rows of a page, from the edge inwards."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.bottom):
        if rows and abs(rows[-1][0].bottom - line.bottom) < line.size / 2:
            rows[-1].append(line)
        else:
            rows.append([line])
    yield "head", rows[:_MARGIN_ROWS]
    yield "foot", rows[: len(rows[:_MARGIN_ROWS]) - 1 : -1][:_MARGIN_ROWS]


def _pattern(line: Line) -> str:
    return "#" if _ALONE.fullmatch(line.text.strip()) else _NUMBERS.sub("#", line.text.casefold()).strip()


def _numbers(lines: Sequence[Line]) -> Iterable[_Number]:
    for line in (line for _, rows in _margins(lines) for row in rows[:1] for line in row):
        text = line.text.strip()
        alone = _ALONE.fullmatch(text)
        if alone:
            yield from _as_number(alone[1])
        elif found := _AT_AN_END.fullmatch(text):
            yield from _as_number(found[1] or found[2])


def _as_number(text: str) -> Iterable[_Number]:
    if text.isdigit():
        yield "arabic", int(text)
    elif _roman(_roman_value(text)) == text.lower():
        yield "roman" if text.islower() else "ROMAN", _roman_value(text)


def _printed(offset: _Number, page: int) -> str:
    style, value = offset[0], offset[1] + page
    if style == "arabic":
        return str(value)
    return _roman(value) if style == "roman" else _roman(value).upper()


def _roman_value(text: str) -> int:
    values = [_ROMAN_DIGITS[char] for char in text.lower()]
    pairs = zip(values, [*values[1:], 0], strict=True)
    return sum(-value if value < following else value for value, following in pairs)


def _roman(value: int) -> str:
    steps = (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x")
    text = ""
    for step, digits in (*steps, (9, "ix"), (5, "v"), (4, "iv"), (1, "i")):
        count, value = divmod(value, step) if value > 0 else (0, value)
        text += digits * count
    return text
