"""The cluster on disk: made whole or not at all, checked for its version, given its settings."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from philorag.errors import ConfigurationError
from philorag.storage.embedded._places import Places, own, socket_directory, write_private

if TYPE_CHECKING:
    from collections.abc import Mapping

    from philorag.storage.embedded._binaries import Binaries

ROLE = DATABASE = "philorag"
_SETTINGS_FILE = "philorag.conf"
_DEFAULTS = {
    "autovacuum": "on",
    "hnsw.ef_search": "100",
    "jit": "off",
    "log_min_messages": "warning",
    "log_timezone": "UTC",
    "maintenance_work_mem": "256MB",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "timezone": "UTC",
}
_RESERVED = {"cluster_name", "listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_SIZE = re.compile(r"(\d+)\s*(B|kB|MB|GB|TB)?")
_UNITS = {"B": 1, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


def create(places: Places, binaries: Binaries, password: str, *, durable: bool) -> None:
    """Initialise beside the final place and move there at the end, so that an interruption leaves no half cluster."""
    for left in places.storage.glob("init-*"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="init-", dir=places.storage))
    try:
        own(work, places.account)
        _initialise(work, places, binaries, password, durable=durable)
        (work / "pgdata").rename(places.data)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _initialise(work: Path, places: Places, binaries: Binaries, password: str, *, durable: bool) -> None:
    data, password_file = work / "pgdata", work / "password"
    write_private(password_file, password, places.account)
    binaries.run(
        "initdb",
        *("-D", data, "-U", ROLE, "--pwfile", password_file, "--auth=scram-sha-256", "--encoding=UTF8"),
        *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--data-checksums"),
        *("--no-instructions", *([] if durable else ["--no-sync"])),
    )
    _single_user(binaries, data, f"CREATE DATABASE {DATABASE};", durable=durable)
    main = data / "postgresql.conf"
    included = f"{main.read_text(encoding='utf-8')}\ninclude_if_exists = '{_SETTINGS_FILE}'\n"
    write_private(main, included, places.account)


def reset_password(places: Places, binaries: Binaries, password: str) -> None:
    """Give the role a new password without the old one; the server must not run."""
    _single_user(binaries, places.data, f"ALTER ROLE {ROLE} PASSWORD '{password}';", durable=True)


def _single_user(binaries: Binaries, data: Path, statement: str, *, durable: bool) -> None:
    sync = [] if durable else ["-c", "fsync=off"]
    binaries.run("postgres", "--single", "-D", data, *sync, "postgres", stdin=f"{statement}\n")


def check_version(places: Places, binaries: Binaries) -> None:
    found = (places.data / "PG_VERSION").read_text(encoding="utf-8").strip()
    if found != str(binaries.major):
        raise ConfigurationError(
            f"The database in this data folder was made by PostgreSQL {found}, but PostgreSQL {binaries.major} is "
            f"installed, which can't read it. Dump it with the programs of version {found} (pg_dump), move its folder "
            "pgdata and the file secret away, start philorag once, and restore the dump (pg_restore).",
            found=found,
            installed=binaries.major,
        )


def check_settings(settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if name in _RESERVED:
            raise ConfigurationError(f"{name} is set by philorag itself and can't be changed.", setting=name)
        if not _NAME.fullmatch(name) or re.search(r"[\r\n\0]", value):
            raise ConfigurationError(f"{name!r} is not a PostgreSQL setting of one line.", setting=name)


def write_settings(places: Places, settings: Mapping[str, str]) -> None:
    """Write what the next start of the server reads."""
    merged = {**_DEFAULTS, **settings}
    memory = merged["maintenance_work_mem"]
    if sys.platform == "linux" and _shared_memory() < _size(memory):
        merged.setdefault("dynamic_shared_memory_type", "mmap")
    merged |= {"cluster_name": cluster_name(places), **_reachable(places)}
    lines = (f"{name} = {_quoted(value)}\n" for name, value in merged.items())
    write_private(places.data / _SETTINGS_FILE, "".join(lines), places.account)


def cluster_name(places: Places) -> str:
    """The word by which the titles of this cluster's processes are told from another's."""
    return f"philorag-{places.key}"


def _reachable(places: Places) -> dict[str, str]:
    if sys.platform == "win32":
        return {"listen_addresses": "127.0.0.1", "port": str(_free_port()), "unix_socket_directories": ""}
    return {
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_directories": f'"{socket_directory(places)}"',
        "unix_socket_permissions": "0700",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _shared_memory() -> int:
    if sys.platform == "win32":
        return 0
    try:
        status = os.statvfs("/dev/shm")  # noqa: S108 - where PostgreSQL's "posix" kind lives
    except FileNotFoundError:
        return 0
    return status.f_blocks * status.f_frsize


def _size(value: str) -> int:
    """Bytes of a PostgreSQL memory setting, whose bare numbers are kilobytes; 0 for one the server will refuse."""
    found = _SIZE.fullmatch(value.strip())
    return int(found[1]) * _UNITS[found[2] or "kB"] if found else 0


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
