"""The printed lines of a PDF page, put together from characters by where they stand."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Line", "page_lines"]

_LINE_OVERLAP = 0.4
_GAP_HEIGHTS = 2.5
_SPACE_HEIGHTS = 0.15
_BACKSTEP_HEIGHTS = 1.0
_RAISED_SIZE = 0.85
_RAISED_BY = 0.1
_RAISABLE = frozenset("0123456789*†‡§¶‖")
_HYPHENS = {0xFFFE: "-", 0x02: "-"}
_BOLD_NAMES = ("bold", "black", "heavy", "semibold", "demi")
_FIRST_PRINTED = 0x20
_FONT_NAME_BYTES = 128


@dataclass(frozen=True, slots=True)
class Line:
    """*raised* are the spans of *text* that are superscript digits or signs; *size* is the height of its letters."""

    text: str
    page: int
    left: float
    right: float
    bottom: float
    top: float
    size: float
    bold: bool
    raised: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class _Char:
    text: str
    index: int
    left: float
    right: float
    bottom: float
    top: float

    @property
    def height(self) -> float:
        return self.top - self.bottom


@dataclass(slots=True)
class _Row:
    chars: list[_Char] = field(default_factory=list)
    tallest: _Char | None = None

    def takes(self, char: _Char) -> bool:
        tallest = self.tallest
        if tallest is None:
            return True
        overlap = min(tallest.top, char.top) - max(tallest.bottom, char.bottom)
        if overlap < _LINE_OVERLAP * min(tallest.height, char.height):
            return False
        step = char.left - self.chars[-1].right
        return -_BACKSTEP_HEIGHTS * tallest.height < step < _GAP_HEIGHTS * tallest.height

    def gap_before(self, char: _Char) -> bool:
        """PDFium breaks the line around a superscript, so its line ends aren't spaces; distances are."""
        return char.left - self.chars[-1].right > _SPACE_HEIGHTS * char.height

    def add(self, char: _Char) -> None:
        self.chars.append(char)
        if self.tallest is None or (char.height > self.tallest.height and char.text.isalnum()):
            self.tallest = char


def page_lines(textpage: pdfium.PdfTextPage, page: int) -> list[Line]:
    lines = []
    row = _Row()
    space = False
    for char in _chars(textpage):
        if char.text.isspace():
            space = space or char.text == " "
            continue
        if not row.takes(char):
            lines.append(_as_line(row, page, textpage))
            row, space = _Row(), False
        if row.chars and (space or row.gap_before(char)):
            row.chars.append(_Char(" ", -1, char.left, char.left, char.bottom, char.top))
        space = False
        row.add(char)
    if row.chars:
        lines.append(_as_line(row, page, textpage))
    return lines


def _chars(textpage: pdfium.PdfTextPage) -> Iterator[_Char]:
    raw = textpage.raw
    box = pdfium_c.FS_RECTF()
    pending = 0
    for index in range(textpage.count_chars()):
        code: int = pdfium_c.FPDFText_GetUnicode(raw, index)
        if 0xD800 <= code < 0xDC00:  # noqa: PLR2004 - Unicode's surrogates
            pending = code
            continue
        if 0xDC00 <= code < 0xE000:  # noqa: PLR2004 - Unicode's surrogates
            code = 0x10000 + ((pending - 0xD800) << 10) + (code - 0xDC00) if pending else 0xFFFD
        pending = 0
        text = _HYPHENS.get(code) or chr(code)
        if text.isspace():
            yield _Char("\n" if text in "\r\n" else " ", index, 0, 0, 0, 0)
        elif code >= _FIRST_PRINTED or code in _HYPHENS:
            pdfium_c.FPDFText_GetLooseCharBox(raw, index, ctypes.byref(box))
            yield _Char(text, index, box.left, box.right, box.bottom, box.top)


def _as_line(row: _Row, page: int, textpage: pdfium.PdfTextPage) -> Line:
    solid = [char for char in row.chars if char.index >= 0]
    size = median(char.height for char in solid)
    bottom = median(char.bottom for char in solid if char.height >= _RAISED_SIZE * size)
    return Line(
        text="".join(char.text for char in row.chars),
        page=page,
        left=min(char.left for char in solid),
        right=max(char.right for char in solid),
        bottom=bottom,
        top=max(char.top for char in solid),
        size=size,
        bold=all(_is_bold(textpage, char.index) for char in (solid[0], solid[-1])),
        raised=tuple(_raised_spans(row.chars, size, bottom)),
    )


def _raised_spans(chars: list[_Char], size: float, bottom: float) -> Iterator[tuple[int, int]]:
    position = start = 0
    inside = False
    for char in chars:
        small = char.height < _RAISED_SIZE * size and char.bottom > bottom + _RAISED_BY * size
        raised = char.index >= 0 and char.text in _RAISABLE and small
        if raised and not inside:
            start = position
        elif inside and not raised:
            yield start, position
        inside = raised
        position += len(char.text)
    if inside:
        yield start, position


def _is_bold(textpage: pdfium.PdfTextPage, index: int) -> bool:
    name = ctypes.create_string_buffer(_FONT_NAME_BYTES)
    length = pdfium_c.FPDFText_GetFontInfo(textpage.raw, index, name, _FONT_NAME_BYTES, None)
    if not 0 < length <= _FONT_NAME_BYTES:
        return False
    found = name.value.decode("utf-8", "replace").lower()
    return any(word in found for word in _BOLD_NAMES)
