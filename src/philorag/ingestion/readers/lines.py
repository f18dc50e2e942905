"""Joining the lines of a printed page into paragraphs, and the words that it broke."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Joiner", "is_verse"]

_WORD = re.compile(r"[^\W\d_]+(?:[-‐][^\W\d_]+)*")
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_HYPHENS = "-‐\u00ad"
_MAX_WORD = 64
_CONTINUED = re.compile(r"[^\W\d_]+")
_MIN_VERSE_LINES = 3
_MAX_VERSE_LINE = 80
_VERSE_SHARE = 0.7
_VERSE_SPREAD = 0.25
_VERSE_WIDTH = 0.8


class Joiner:
    """Knows the words of one document, so that it can tell a broken word from a compound.

    `self-` + `evident` keeps its hyphen when the document writes `self-evident` elsewhere, or both halves but never
    `selfevident`; `argu-` + `ment` loses it.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._words: set[str] = set()
        lines = list(lines)
        wanted = {form for pair in pairwise(lines) for form in _forms(*pair)}
        for line in lines if wanted else ():
            # The last word of a line may be a fragment, so it proves nothing.
            body = line.rstrip()
            text = body[: -len(_stem(body)) - 1] if body[-1:] in _HYPHENS and body else body
            self._words.update(wanted.intersection(found[0].lower() for found in _WORD.finditer(text)))

    def join(self, lines: Iterable[str]) -> str:
        pieces: list[str] = []
        for line in lines:
            following = line.strip()
            if pieces and following:
                pieces[-1] = self._seam(pieces[-1], following)
            if following:
                pieces.append(following)
        return "".join(pieces)

    def _seam(self, before: str, following: str) -> str:
        """*before* with what stands between it and *following*: a space, a hyphen or nothing."""
        stem = _stem(before)
        if not stem:
            return before + " "
        bare, hyphen = before[:-1], "" if before[-1] == "\u00ad" else "-"
        continued = _CONTINUED.match(following)
        if not continued or not continued[0][0].islower():
            return bare + hyphen
        return bare if not hyphen or self._is_one_word(stem, continued[0]) else bare + hyphen

    def _is_one_word(self, first: str, second: str) -> bool:
        first, second = first.lower(), second.lower()
        if first + second in self._words:
            return True
        if f"{first}-{second}" in self._words:
            return False
        return not (first in self._words and second in self._words)


def _stem(line: str) -> str:
    """The letters before a hyphen at the end of *line*; empty when no word is broken there."""
    if line[-1:] not in _HYPHENS or not line:
        return ""
    found = _LAST_WORD.search(line[-_MAX_WORD:-1])
    return found[0] if found else ""


def _forms(line: str, following: str) -> tuple[str, ...]:
    """The words that would tell whether a break is a hyphen of the language."""
    first = _stem(line.rstrip()).lower()
    continued = _CONTINUED.match(following.lstrip()) if first else None
    if not continued:
        return ()
    second = continued[0].lower()
    return first, second, first + second, f"{first}-{second}"


def is_verse(lines: list[str], usual_width: float = 0) -> bool:
    """Whether lines end where the author wanted: the next word would have fitted on most of them.

    Prose in a narrower column than the *usual_width* looks alike, but its lines are of nearly one length.
    """
    if len(lines) < _MIN_VERSE_LINES:
        return False
    width = max(map(len, lines))
    if width > _MAX_VERSE_LINE:
        return False
    if _ends_early(lines, width) >= _VERSE_SHARE:
        return True
    irregular = width - min(map(len, lines[:-1])) >= _VERSE_SPREAD * width
    narrow = width < _VERSE_WIDTH * usual_width
    return irregular and narrow and _ends_early(lines, usual_width) >= _VERSE_SHARE


def _ends_early(lines: list[str], width: float) -> float:
    """The share of lines on which the first word of the next would have fitted."""
    early = sum(len(line) + 1 + len(following.split(maxsplit=1)[0]) <= width for line, following in pairwise(lines))
    return early / (len(lines) - 1)
