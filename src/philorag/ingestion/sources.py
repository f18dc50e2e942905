"""Files that may be read: what a caller's path means, and what lies below a folder."""

from __future__ import annotations

import hashlib
import os
import stat
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from philorag.errors import InvalidInput, PermissionDenied, ProcessingError
from philorag.model import ItemFailure, SourceState

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SourceFile", "SourceFolder", "Walk", "hash_unchanged"]

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as the walk saw it; *logical* is its path in the library."""

    path: Path
    logical: str
    size: int
    mtime_ns: int


@dataclass(slots=True)
class Walk:
    """What lies below a folder: files to read, and what can't be."""

    files: list[SourceFile] = field(default_factory=list)
    failed: list[ItemFailure] = field(default_factory=list)


class SourceFolder:
    """A folder whose files may be ingested, under *prefix* in the library. Nothing outside it is ever opened."""

    def __init__(self, folder: Path, prefix: str = "documents") -> None:
        self.folder = folder
        self._real = Path(os.path.realpath(folder))
        self._prefix = prefix

    def resolve(self, path: str, argument: str = "path") -> Path:
        """The file or folder that *path* names.

        Raises `PermissionDenied` when it leaves this folder, `InvalidInput` when nothing is there.
        """
        if "\0" in path:
            raise InvalidInput(
                f"`{argument}` holds a NUL character; give a path such as 'plato/republic.md'.", argument=argument
            )
        wanted = Path(os.path.normpath(self.folder / path))
        if ".." in Path(path).parts or not (wanted.is_relative_to(self.folder) and self._holds(wanted)):
            raise PermissionDenied(
                f"`{argument}` leaves the source folder. Give a path below it, such as 'plato/republic.md'.",
                argument=argument,
                path=path,
            )
        if not os.path.lexists(wanted):
            raise InvalidInput(
                f"`{argument}` names nothing in the source folder. Give the path of a file or folder there, relative "
                "to it, such as 'plato/republic.md' or '.'.",
                argument=argument,
                path=path,
            )
        return wanted

    def logical(self, path: Path) -> str:
        """The library's name for *path*: NFC, separated by `/`."""
        relative = path.relative_to(self.folder).as_posix()
        return unicodedata.normalize("NFC", f"{self._prefix}/{relative}")

    def file(self, path: Path) -> SourceFile:
        """*path* as a file to read. Raises `ProcessingError` when it isn't one."""
        try:
            status = path.stat()
        except OSError as error:
            raise _unreadable(error) from error
        if not stat.S_ISREG(status.st_mode):
            raise ProcessingError(
                "This is not a regular file (a device, a pipe or a socket). Give a text, Markdown, HTML, EPUB or PDF "
                "file.",
                reason="not_a_file",
            )
        return SourceFile(path, self.logical(path), status.st_size, status.st_mtime_ns)

    def walk(self, folder: Path, *, recursive: bool) -> Walk:
        """Every file below *folder* in order of name. Names that begin with a dot are passed over."""
        found = Walk()
        for path in self._below(folder, found, recursive=recursive):
            self._take(path, found)
        return found

    def _below(self, folder: Path, found: Walk, *, recursive: bool) -> Iterator[Path]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            found.failed.append(_failure(self._printable(folder), _unreadable(error)))
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if recursive:
                    yield from self._below(Path(entry.path), found, recursive=True)
            elif not (entry.is_symlink() and entry.is_dir() and self._holds(Path(entry.path))):
                # A link to a folder in here is passed over: that folder's own name leads to the same files.
                yield Path(entry.path)

    def _take(self, path: Path, found: Walk) -> None:
        if not self._holds(path):
            link = PermissionDenied("This link leaves the source folder.")
            found.failed.append(_failure(self._printable(path), link))
            return
        try:
            self.logical(path).encode()
            found.files.append(self.file(path))
        except UnicodeEncodeError:
            problem = ProcessingError("The file's name is not valid UTF-8. Rename it.", reason="unreadable")
            found.failed.append(_failure(self._printable(path), problem))
        except ProcessingError as error:
            found.failed.append(_failure(self._printable(path), error))

    def _holds(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self._real)

    def _printable(self, path: Path) -> str:
        return self.logical(path).encode("utf-8", "backslashreplace").decode()


def hash_unchanged(file: SourceFile, known: SourceState) -> bool:
    """Whether *file*, though its times differ, still has the contents that *known* remembers."""
    if file.size != known.size:
        return False
    digest = hashlib.sha256()
    try:
        with file.path.open("rb") as stream:
            while part := stream.read(_CHUNK):
                digest.update(part)
    except OSError:
        # Reading it will say what is wrong.
        return False
    return digest.hexdigest() == known.sha256


def _failure(logical: str, error: PermissionDenied | ProcessingError) -> ItemFailure:
    reason = error.reason if isinstance(error, ProcessingError) else error.message
    return ItemFailure(logical, error.code, reason)


def _unreadable(error: OSError) -> ProcessingError:
    if isinstance(error, FileNotFoundError):
        return ProcessingError("The file vanished before it was read. Try again.", reason="vanished")
    return ProcessingError(
        "The file or folder can't be read. Give the user that runs philorag permission to read it.", reason="unreadable"
    )
