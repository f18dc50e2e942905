"""What a file is, by its content; the name only tells Markdown from plain text."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from pathlib import PurePath
from typing import Literal

from philorag.errors import ProcessingError

__all__ = ["MEDIA_TYPES", "Format", "detect_format"]

Format = Literal["epub", "html", "markdown", "pdf", "plain"]

MEDIA_TYPES: dict[Format, str] = {
    "epub": "application/epub+zip",
    "html": "text/html",
    "markdown": "text/markdown",
    "pdf": "application/pdf",
    "plain": "text/plain",
}

_ACCEPTED = "PDF, EPUB, HTML, Markdown and plain text (UTF-8)"
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD_BYTES = 65_536
_PDF_HEAD_BYTES = 1024

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"AT&TFORM", "a DjVu document"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document of the old binary kind (.doc, .xls, .ppt)"),
    (b"{\\rtf", "an RTF document"),
    (b"%!PS", "a PostScript document"),
    (b"\x1f\x8b", "gzip-compressed data"),
    (b"BZh", "bzip2-compressed data"),
    (b"\xfd7zXZ\x00", "xz-compressed data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x7fELF", "an executable (ELF)"),
    (b"\xcf\xfa\xed\xfe", "an executable (Mach-O)"),
    (b"\xca\xfe\xba\xbe", "an executable (Mach-O or Java)"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"OggS", "an Ogg recording"),
    (b"ID3", "an MP3 recording"),
)
_SIGNATURES_OF_BINARIES: tuple[tuple[bytes, str], ...] = ((b"MZ", "an executable (Windows)"), (b"BM", "a BMP image"))
_OFFICE_FOLDERS = {"word/": "a Word document (.docx)", "xl/": "an Excel workbook", "ppt/": "a PowerPoint presentation"}

_PROLOGUE = re.compile(r"\A(?:\s+|<\?(?!xml-)[^>]*>|<\?xml-[^>]*>|<!--.*?-->)+", re.DOTALL)
_HTML_START = re.compile(r"<!doctype\s+html|<html[\s>/]", re.IGNORECASE)
_HTML_FRAGMENT = re.compile(
    r"<(?:head|body|main|article|section|div|p|h[1-6]|table|ul|ol|blockquote|title|meta)(?:\s[^>]*)?>", re.IGNORECASE
)
_XML_ROOT = re.compile(r"<([A-Za-z_][\w.:-]*)")
_MARKDOWN_SIGNS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^#{1,6} \S",
        r"^\[\^[^\]\s]+\]:",
        r"\[[^\]\[\n]{1,200}\]\((?:https?:|#|\.?/)[^)\n]*\)",
        r"^```",
        r"^\|?(?: *:?-{3,}:? *\|)+",
        r"\*\*[^*\n]+\*\*",
    )
)
_FRONTMATTER = re.compile(
    r"\A---[ \t]*\r?\n(?:[^\n]*\n){0,200}?[\w-]+:[^\n]*\n(?:[^\n]*\n){0,200}?(?:---|\.\.\.)[ \t]*\r?\n"
)
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")
_CONTROL_SHARE = 0.02


def detect_format(data: bytes, name: str) -> Format:
    """The format of *data*; raises `ProcessingError` `empty` or `unsupported_format`."""
    if not _has_content(data):
        raise ProcessingError("The file is empty.", reason="empty")
    if b"%PDF-" in data[:_PDF_HEAD_BYTES]:
        return "pdf"
    suffix = PurePath(name).suffix.lower()
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _detect_zip(data, suffix)
    _refuse_binary(data)
    return _detect_text(_head_text(data), suffix)


def _has_content(data: bytes) -> bool:
    for bom in _BOMS:
        if data.startswith(bom):
            return bool(data[len(bom) :].strip(b" \t\r\n\f\v\x00"))
    return bool(data.strip())


def _unsupported(seems: str) -> ProcessingError:
    return ProcessingError(
        f"The file seems to be {seems}. Accepted are {_ACCEPTED}; convert it first.",
        reason="unsupported_format",
        seems=seems,
    )


def _refuse_binary(data: bytes) -> None:
    for signature, seems in _SIGNATURES:
        if data.startswith(signature):
            raise _unsupported(seems)
    if data[60:68] == b"BOOKMOBI":
        raise _unsupported("a Kindle book (Mobipocket)")
    if data[4:8] == b"ftyp":
        raise _unsupported("a video or HEIC image")
    if data.startswith(_BOMS[1:]):
        return
    head = data[:_HEAD_BYTES]
    if b"\x00" in data:
        for signature, seems in _SIGNATURES_OF_BINARIES:
            if data.startswith(signature):
                raise _unsupported(seems)
        raise _unsupported("binary data (it holds NUL bytes)")
    if len(_CONTROL.findall(head)) > _CONTROL_SHARE * len(head):
        raise _unsupported("binary data (it holds control bytes)")


def _detect_zip(data: bytes, suffix: str) -> Format:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
            media_type = _declared_media_type(archive, names)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as exc:
        if suffix == ".epub" or b"application/epub+zip" in data[:200]:
            return "epub"
        raise _unsupported("a damaged zip archive") from exc
    if media_type == MEDIA_TYPES["epub"] or "META-INF/container.xml" in names:
        return "epub"
    if media_type.startswith("application/vnd.oasis"):
        raise _unsupported("an OpenDocument file")
    for folder, seems in _OFFICE_FOLDERS.items():
        if any(entry.startswith(folder) for entry in names):
            raise _unsupported(seems)
    raise _unsupported("a zip archive")


def _declared_media_type(archive: zipfile.ZipFile, names: set[str]) -> str:
    if "mimetype" not in names:
        return ""
    try:
        with archive.open("mimetype") as entry:
            return entry.read(100).decode("ascii", "replace").strip()
    except (RuntimeError, zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError):
        return ""


def _head_text(data: bytes) -> str:
    head = data[:_HEAD_BYTES]
    if head.startswith(_BOMS[1:]):
        return head.decode("utf-16", "replace")
    return head.decode("utf-8-sig", "replace")


def _detect_text(head: str, suffix: str) -> Format:
    start = _PROLOGUE.sub("", head, count=1)
    if _HTML_START.match(start):
        return "html"
    if head.lstrip().startswith("<?xml"):
        return _detect_xml(start)
    if suffix in {".html", ".htm", ".xhtml"}:
        return "html"
    if suffix in {".md", ".markdown"}:
        return "markdown"
    if _HTML_FRAGMENT.match(start):
        return "html"
    return "markdown" if _is_markdown(head) else "plain"


def _detect_xml(start: str) -> Format:
    root = _XML_ROOT.search(start)
    name = root[1] if root else "unknown"
    if name.rpartition(":")[2] == "html":
        return "html"
    raise _unsupported(f"an XML document (root element {name[:40]})")


def _is_markdown(head: str) -> bool:
    """Two different signs, so that one stray asterisk or hash in a plain text doesn't decide."""
    if _FRONTMATTER.match(head):
        return True
    return sum(1 for sign in _MARKDOWN_SIGNS if sign.search(head)) >= 2  # noqa: PLR2004 - one sign may be chance
