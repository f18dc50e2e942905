"""The zip around an EPUB: read by name, never extracted, and not beyond measure."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Self

from lxml import etree

from philorag.errors import ProcessingError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Archive", "damaged", "parse_xml"]

_MAX_ENTRIES = 20_000
_MAX_TOTAL_BYTES = 1 << 30
_MAX_ENTRY_BYTES = 32 << 20
_MAX_READ_BYTES = 128 << 20
_MAX_RATIO = 150
_RATIO_FROM_BYTES = 16 << 20
_FONT_OBFUSCATION = {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
_ENCRYPTED_FLAG = 1


def damaged(what: str) -> ProcessingError:
    return ProcessingError(f"The EPUB is damaged: {what}. Get another copy of it.", reason="corrupt")


def _too_large(what: str, **details: int) -> ProcessingError:
    return ProcessingError(f"The EPUB is too large to be read safely: {what}.", reason="too_large", **details)


def parse_xml(data: bytes, name: str) -> etree._Element:
    """Tolerant of small faults; no entities, no network, no DTD."""
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, recover=True, remove_comments=True
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as exc:
        raise damaged(f"{name} is not XML") from exc
    if root is None:
        raise damaged(f"{name} is not XML")
    return root


class Archive:
    """Reads entries of a zip held in memory; raises `ProcessingError` for what is broken, encrypted or a bomb."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as exc:
            raise damaged("its zip archive can't be opened") from exc
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        self._left = _MAX_READ_BYTES
        self._check_size(len(data))
        self._check_encryption()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def read(self, name: str) -> bytes:
        entry = self._entries.get(name)
        if entry is None:
            raise damaged(f"{name[:200]} is missing")
        if entry.flag_bits & _ENCRYPTED_FLAG:
            raise _encrypted()
        if entry.file_size > min(_MAX_ENTRY_BYTES, self._left):
            raise _too_large(f"{name[:200]} unpacks to {entry.file_size} bytes", bytes=entry.file_size)
        self._left -= entry.file_size
        try:
            return self._zip.read(entry)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            NotImplementedError,
            RuntimeError,
            ValueError,
        ) as exc:
            raise damaged(f"{name[:200]} can't be unpacked") from exc

    def _check_size(self, packed: int) -> None:
        if len(self._zip.infolist()) > _MAX_ENTRIES:
            raise _too_large(f"it has {len(self._entries)} entries", entries=len(self._entries))
        total = sum(entry.file_size for entry in self._zip.infolist())
        if total > _MAX_TOTAL_BYTES or (total > _RATIO_FROM_BYTES and total > _MAX_RATIO * packed):
            raise _too_large(f"{packed} bytes would unpack to {total}", bytes=total)

    def _check_encryption(self) -> None:
        name = "META-INF/encryption.xml"
        if name not in self._entries:
            return
        methods = parse_xml(self.read(name), name).iterfind(".//{*}EncryptedData/{*}EncryptionMethod")
        if any(method.get("Algorithm") not in _FONT_OBFUSCATION for method in methods):
            raise _encrypted()


def _encrypted() -> ProcessingError:
    return ProcessingError(
        "The EPUB is protected (DRM), so its text can't be read. Get a copy without protection.", reason="encrypted"
    )
