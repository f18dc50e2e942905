"""From bytes to text, strictly: nothing is guessed and nothing is replaced."""

from __future__ import annotations

import codecs
import re

from philorag.errors import ProcessingError

__all__ = ["decode_markup", "decode_text"]

_UTF16_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?\bencoding\s*=\s*["']([\w.:-]{1,40})|<meta[^>]{0,400}?\bcharset\s*=\s*["']?\s*([\w.:-]{1,40})""",
    re.IGNORECASE,
)
_DECLARATION_BYTES = 4096
# Codecs that are not character sets (utf-7, unicode_escape, punycode ...) would let markup hide in them.
_CHARSET = re.compile(
    r"utf-8$|ascii$|cp\d+$|iso8859-\d+$|koi8-[rtu]$|mac-\w+$|gb2312$|gbk$|gb18030$|big5\w*$"
    r"|euc_\w+$|shift_jis\w*$|iso2022_\w+$|tis-620$|johab$|kz1048$|ptcp154$"
)


def decode_text(data: bytes) -> str:
    """UTF-8 with or without a byte order mark, or UTF-16 with one; anything else is `corrupt`."""
    for bom, codec in _UTF16_BOMS.items():
        if data.startswith(bom):
            return _strict(data[len(bom) :], codec, offset=len(bom))
    if data.startswith(codecs.BOM_UTF8):
        return _strict(data[3:], "utf-8", offset=3)
    return _strict(data, "utf-8", offset=0)


def decode_markup(data: bytes) -> str:
    """Like `decode_text`, but a character set that HTML or XML declares counts where no byte order mark does."""
    if data.startswith((*_UTF16_BOMS, codecs.BOM_UTF8)):
        return decode_text(data)
    return _strict(data, _declared_codec(data), offset=0)


def _declared_codec(data: bytes) -> str:
    found = _DECLARED.search(data[:_DECLARATION_BYTES])
    if not found:
        return "utf-8"
    label = (found[1] or found[2]).decode("ascii").lower()
    if label.startswith("utf-16"):
        # A declaration that could be read byte by byte can't be UTF-16 (so does the HTML standard).
        return "utf-8"
    try:
        name = codecs.lookup(label).name
    except LookupError as exc:
        raise _unknown_charset(label) from exc
    if not _CHARSET.match(name):
        raise _unknown_charset(label)
    return "cp1252" if name in {"iso8859-1", "ascii"} else name


def _unknown_charset(label: str) -> ProcessingError:
    return ProcessingError(
        f"The file declares the character set {label!r}, which is not known. Save it as UTF-8 and declare that.",
        reason="corrupt",
        charset=label,
    )


def _strict(data: bytes, codec: str, *, offset: int) -> str:
    try:
        return data.decode(codec)
    except UnicodeDecodeError as exc:
        raise _undecodable(exc, data, codec, offset) from exc


def _undecodable(exc: UnicodeDecodeError, data: bytes, codec: str, offset: int) -> ProcessingError:
    byte = offset + exc.start
    line = data.count(b"\n", 0, exc.start) + 1
    value = data[exc.start]
    what = (
        "an encoded surrogate" if codec == "utf-8" and data[exc.start : exc.start + 1] == b"\xed" else f"0x{value:02x}"
    )
    return ProcessingError(
        f"The file is not valid {codec.upper()}: {what} at byte {byte} (line {line}). Convert it to UTF-8 from the "
        "encoding that it was written in, for example: iconv -f WINDOWS-1252 -t UTF-8 old.txt > new.txt",
        reason="corrupt",
        byte=byte,
        line=line,
    )
