"""Resident memory of the gateway, its readers and PostgreSQL while something happens."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Peaks", "watched"]

_INTERVAL_S = 0.05
_READER = "philorag.ingestion.reader_worker"
_MEGABYTE = 1_000_000


class Peaks:
    """Peaks in MB so far: *reader* of the largest one, *postgres* of all its processes, shared pages once."""

    gateway = 0.0
    reader = 0.0
    postgres = 0.0

    def look(self, gateway: psutil.Process) -> None:
        self.gateway = max(self.gateway, gateway.memory_info().rss / _MEGABYTE)
        for child in gateway.children(recursive=True):
            try:
                if _READER in child.cmdline():
                    self.reader = max(self.reader, child.memory_info().rss / _MEGABYTE)
            except psutil.NoSuchProcess:
                continue

    def look_at_postgres(self, postmaster: psutil.Process) -> None:
        total = 0.0
        for process in (postmaster, *postmaster.children(recursive=True)):
            try:
                total += process.memory_full_info().pss / _MEGABYTE
            except psutil.NoSuchProcess:
                continue
        self.postgres = max(self.postgres, total)


@contextmanager
def watched(gateway_pid: int, postmaster_pid: int) -> Iterator[Peaks]:
    """What the processes held at most until the block ends."""
    peaks, over = Peaks(), threading.Event()
    gateway, postmaster = psutil.Process(gateway_pid), psutil.Process(postmaster_pid)

    def watch() -> None:
        rounds = 0
        while not over.wait(_INTERVAL_S):
            peaks.look(gateway)
            if rounds % 20 == 0:
                peaks.look_at_postgres(postmaster)
            rounds += 1

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield peaks
    finally:
        over.set()
        watching.join()
