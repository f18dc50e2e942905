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
    """A file as the walk saw it: *path* is free of links, *logical* is its path in the library."""

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

        Raises `PermissionDenied` when it leaves this folder, `InvalidInput` when nothing is there, `ProcessingError`
        when a folder on the way may not be entered.
        """
        if "\0" in path or not _is_text(path):
            raise InvalidInput(
                f"`{argument}` holds a character that no path here has; give a path such as 'plato/republic.md'.",
                argument=argument,
            )
        wanted = Path(os.path.normpath(self.folder / path))
        if ".." in Path(path).parts or not (wanted.is_relative_to(self.folder) and self._holds(wanted)):
            raise PermissionDenied(
                f"`{argument}` leaves the source folder. Give a path below it, such as 'plato/republic.md'.",
                argument=argument,
                path=path,
            )
        if not _exists(wanted):
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
        """*path* as a file to read. Raises `ProcessingError` when it isn't one, `PermissionDenied` when it left."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._real):
            raise PermissionDenied("This link leaves the source folder.")
        try:
            status = real.stat()
        except OSError as error:
            raise _unreadable(error) from error
        if not stat.S_ISREG(status.st_mode):
            raise ProcessingError(
                "This is not a regular file (a device, a pipe or a socket). Give a text, Markdown, HTML, EPUB or PDF "
                "file.",
                reason="not_a_file",
            )
        return SourceFile(real, self._name_of(path, real), status.st_size, status.st_mtime_ns)

    def walk(self, folder: Path, *, recursive: bool) -> Walk:
        """Every file below *folder* in order of name. Names that begin with a dot are passed over."""
        found = Walk()
        taken: dict[str, Path] = {}
        for path in self._below(folder, found, recursive=recursive):
            self._take(path, found, taken)
        return found

    def _below(self, folder: Path, found: Walk, *, recursive: bool) -> Iterator[Path]:
        waiting = [folder]
        while waiting:
            path = waiting.pop()
            is_folder, is_link = os.path.isdir(path), os.path.islink(path)  # noqa: PTH112, PTH114 - these never raise
            if path == folder or (recursive and is_folder and not is_link):
                waiting.extend(reversed(self._entries(path, found)))
            elif not is_folder or (is_link and not self._holds(path)):
                # A link to a folder in here is passed over: that folder's own name leads to the same files.
                yield path

    def _entries(self, folder: Path, found: Walk) -> list[Path]:
        try:
            names = sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208 - quicker
        except OSError as error:
            found.failed.append(_failure(self._printable(folder), _unreadable(error)))
            return []
        return [folder / name for name in names]

    def _take(self, path: Path, found: Walk, taken: dict[str, Path]) -> None:
        try:
            file = self._named(path)
            first = taken.setdefault(file.logical, file.path)
            _refuse_clash(first, file.path)
        except (PermissionDenied, ProcessingError) as error:
            found.failed.append(_failure(self._printable(path), error))
        else:
            # A second name of the same file is a link to it.
            if first is file.path:
                found.files.append(file)

    def _named(self, path: Path) -> SourceFile:
        if not _is_text(str(path)):
            raise ProcessingError("The file's name is not valid UTF-8. Rename it.", reason="unreadable")
        return self.file(path)

    def _name_of(self, path: Path, real: Path) -> str:
        """A link is another name of the file that it leads to, unless that is hidden (as git-annex keeps files)."""
        below = real.relative_to(self._real)
        visible = not any(part.startswith(".") for part in below.parts)
        return self.logical(self.folder / below if visible else path)

    def _holds(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self._real)

    def _printable(self, path: Path) -> str:
        return self.logical(path).encode("utf-8", "backslashreplace").decode()


def _refuse_clash(first: Path, second: Path) -> None:
    if first != second:
        raise ProcessingError(
            "Another file here has the same name in another Unicode form. Rename one.", reason="unreadable"
        )


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def hash_unchanged(file: SourceFile, known: SourceState) -> bool:
    """Whether *file*, though its times differ, still has the contents that *known* remembers."""
    if file.size != known.size:
        return False
    digest = hashlib.sha256()
    try:
        with open(file.path, "rb", opener=_open_as_vetted) as stream:
            while part := stream.read(_CHUNK):
                digest.update(part)
    except OSError:
        # Reading it will say what is wrong.
        return False
    return digest.hexdigest() == known.sha256


def _open_as_vetted(path: str, flags: int) -> int:
    """What was a file may by now be a link, or a pipe that would keep us waiting."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except PermissionError as error:
        raise _unreadable(error) from error
    except OSError:
        # Not there, or of a name that nothing can have.
        return False
    return True


def _failure(logical: str, error: PermissionDenied | ProcessingError) -> ItemFailure:
    reason = error.reason if isinstance(error, ProcessingError) else error.message
    return ItemFailure(logical, error.code, reason)


def _unreadable(error: OSError) -> ProcessingError:
    if isinstance(error, FileNotFoundError):
        return ProcessingError("The file vanished before it was read. Try again.", reason="vanished")
    return ProcessingError(
        "The file or folder can't be read. Give the user that runs philorag permission to read it.", reason="unreadable"
    )
