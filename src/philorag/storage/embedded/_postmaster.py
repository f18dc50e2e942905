"""The server process: told from strangers with its number, launched, awaited and stopped."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from philorag.errors import ConfigurationError, DatabaseUnavailable
from philorag.storage.embedded._binaries import Binaries, execute, last_lines
from philorag.storage.embedded._cluster import cluster_name

if TYPE_CHECKING:
    from philorag.storage.embedded._places import Places

_POLL = 0.02
_ORPHANS_LEAVE = 30.0
_FAST_STOP = 30
_LOG_BYTES = 8 * 2**20
# The shell leaves at once, so the server gets the system as its parent and never becomes our zombie;
# paths are arguments here, where pg_ctl would put them between double quotes for a shell to expand.
_BACKGROUND = '"$@" </dev/null >>"$0" 2>&1 & echo $!'


@dataclass(frozen=True)
class Postmaster:
    """A live server; *host* is its socket's folder, or its address where it has none."""

    pid: int
    host: str
    port: int
    ready: bool


def find(data: Path) -> Postmaster | None:
    """The server of this very cluster that the pidfile names, unless it is dead, a zombie or a stranger."""
    pid, _, _, port, directory, address, _, status = _pidfile(data)
    if not pid.isdecimal() or not _serves(int(pid), data):
        return None
    return Postmaster(int(pid), directory or address, int(port or 0), ready=status == "ready")


def _pidfile(data: Path) -> list[str]:
    try:
        lines = (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    return [line.strip() for line in (lines + [""] * 8)[:8]]


def _serves(pid: int, data: Path) -> bool:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
            return False
        # Its working directory would say the same, but a container's root may not look at that.
        return any(Path(word) == data for word in process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def settled(data: Path, timeout: float) -> Postmaster | None:
    """The server once it is ready, None once it is gone; one that only recovers after *timeout* is refused."""
    deadline = time.monotonic() + timeout
    while (found := find(data)) and not found.ready:
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(
                f"PostgreSQL has not finished starting in {timeout:.0f} s, perhaps recovering from a crash. Try later.",
                reason="unreachable",
            )
        time.sleep(_POLL)
    return found


def launch(places: Places, binaries: Binaries, timeout: float) -> Postmaster:
    """Start the server; `DatabaseUnavailable` carries what it wrote to its log."""
    _clear(places)
    _rotate(places.log)
    written = _size(places.log)
    pid = _spawn(places, binaries, timeout)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = find(places.data)
        if found and found.ready:
            return found
        # Another's server may stand there: of a process that was killed between launching and waiting.
        if not found and not _alive(pid):
            break
        time.sleep(_POLL)
    raise DatabaseUnavailable(
        "The embedded PostgreSQL did not start. Check that the disk has room, and the settings that were changed; then "
        f"try again. The end of its log (server.log): {_tail(places, binaries, written)}",
        reason="unreachable",
    )


def _spawn(places: Places, binaries: Binaries, timeout: float) -> int:
    if sys.platform == "win32":
        # Only pg_ctl can shed an administrator's rights, with which the server would refuse to start.
        binaries.run("pg_ctl", "-D", places.data, "-l", places.log, "-w", "-t", f"{timeout:.0f}", "start")
        return int(_pidfile(places.data)[0])
    server: list[str | Path] = [binaries.directory / "postgres", "-D", places.data]
    shell: list[str | Path] = ["/bin/sh", "-c", _BACKGROUND, places.log]
    return int(execute([*shell, *server], places.account).stdout)


def stop(places: Places, binaries: Binaries) -> None:
    """End the server: politely, and if that takes too long by the way that needs recovery at the next start."""
    command: list[str | Path] = ["-D", places.data, "-w", "-t", str(_FAST_STOP), "stop", "-m"]
    try:
        binaries.run("pg_ctl", *command, "fast")
    except DatabaseUnavailable:
        if find(places.data):
            binaries.run("pg_ctl", *command, "immediate")


def _clear(places: Places) -> None:
    """Remove what a killed server left behind, after its children have gone."""
    pid, _, _, port, directory, *_ = _pidfile(places.data)
    if not pid:
        return
    socket_file = Path(directory, f".s.PGSQL.{port}") if directory else None
    if socket_file and _listened(socket_file):
        raise ConfigurationError(
            "A PostgreSQL that this process can't see, perhaps in another container, serves this data folder. Stop it."
        )
    _await_orphans(places)
    (places.data / "postmaster.pid").unlink(missing_ok=True)
    if socket_file:
        socket_file.unlink(missing_ok=True)
        socket_file.with_name(f"{socket_file.name}.lock").unlink(missing_ok=True)


def _listened(path: Path) -> bool:
    if sys.platform == "win32":
        return False
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def _await_orphans(places: Places) -> None:
    deadline = time.monotonic() + _ORPHANS_LEAVE
    while _orphans(cluster_name(places)):
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(
                "Processes of a killed PostgreSQL still use the database. End them, then try again.",
                reason="unreachable",
            )
        time.sleep(_POLL)


def _orphans(name: str) -> bool:
    title = f"postgres: {name}: "
    processes = psutil.process_iter(["cmdline", "status"])
    return any(
        process.info["cmdline"] and process.info["cmdline"][0].startswith(title)
        for process in processes
        if process.info["status"] != psutil.STATUS_ZOMBIE
    )


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _rotate(log: Path) -> None:
    if _size(log) > _LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _tail(places: Places, binaries: Binaries, start: int) -> str:
    with suppress(FileNotFoundError), places.log.open("rb") as file:
        file.seek(start)
        text = file.read(2**16).decode(errors="replace")
        return last_lines(text, places.data, places.storage, places.home, binaries.directory)
    return "(empty)"
