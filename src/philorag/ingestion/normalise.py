"""One form of text for every reader: what is stored, searched and quoted."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["clean", "normalise_lines", "normalise_prose"]

_LINE_ENDS = re.compile("\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffc\U000e0000-\U000e007f]"
)
_SURROGATES = re.compile("[\ud800-\udfff]")
# Persian, Urdu and the Indic scripts spell with joiners; elsewhere they are layout.
_JOINED_SCRIPTS = "\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af"
_JOINERS = re.compile(f"(?<![{_JOINED_SCRIPTS}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED_SCRIPTS}])")
_WHITE = re.compile(r"\s{2,}|[^\S ]")
_BLANK_LINES = re.compile(r"\n{3,}")


def clean(text: str) -> str:
    """NFC without invisible characters; line ends are newlines, every other kind of space is a plain one or a tab."""
    text = _LINE_ENDS.sub("\n", text)
    if text.isascii():
        return _INVISIBLE.sub("", text)
    text = _SPACES.sub(" ", _INVISIBLE.sub("", text))
    text = _SURROGATES.sub("\ufffd", _JOINERS.sub("", text))
    return unicodedata.normalize("NFC", text)


def normalise_prose(text: str) -> str:
    """One line: runs of white space become one space, the ends are bare."""
    return _WHITE.sub(" ", clean(text)).strip()


def normalise_lines(text: str) -> str:
    """Like `normalise_prose`, but line breaks and the spaces within lines stay (verse, code, tables)."""
    text = "\n".join(line.rstrip() for line in clean(text).split("\n"))
    return _BLANK_LINES.sub("\n\n", text).strip()
