"""Which processes use a cluster: each keeps a file locked, and the system unlocks it however its process ends."""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fasteners import InterProcessLock

from philorag.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_shared: dict[Path, References] = {}
_sharing = threading.Lock()


class References:
    """The references to one cluster; one object for each process and folder of locks.

    POSIX gives file locks to processes, not to file objects: a second lock on the same file in one process would
    succeed, and closing it would undo the first. So the objects of one process are counted here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mutex = threading.Lock()
        self._count = 0
        self._mine: InterProcessLock | None = None

    @contextmanager
    def exclusive(self, timeout: float) -> Iterator[None]:
        """Nobody else, in this or any other process, starts or stops the cluster meanwhile."""
        lock = InterProcessLock(str(self._folder / "start.lock"))
        with self._mutex:
            if not lock.acquire(timeout=timeout):
                lock.lockfile.close()
                raise DatabaseUnavailable(
                    f"Another process has been starting PostgreSQL for {timeout:.0f} s. Try again later.",
                    reason="unreachable",
                )
            try:
                yield
            finally:
                lock.release()

    def add(self) -> None:
        """Call within `exclusive`."""
        if self._mine is None:
            self._mine = InterProcessLock(str(self._folder / f"{os.getpid()}-{secrets.token_hex(4)}.client"))
            self._mine.acquire()
        self._count += 1

    def drop(self) -> bool:
        """True when nobody is left; call within `exclusive`."""
        self._count -= 1
        if self._count > 0:
            return False
        if self._mine is not None:
            self._mine.release()
            self._mine = None
        held = [_held(path) for path in self._folder.glob("*.client")]
        return not any(held)


def references(folder: Path) -> References:
    with _sharing:
        return _shared.setdefault(folder, References(folder))


def _held(path: Path) -> bool:
    """Whether a living process holds the reference; one that nobody holds is removed."""
    lock = InterProcessLock(str(path))
    if not lock.acquire(blocking=False):
        lock.lockfile.close()
        return True
    lock.release()
    path.unlink(missing_ok=True)
    return False
