"""Where an embedded cluster keeps its files, and the account that owns them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from philorag.errors import ConfigurationError

SERVICE_ROOT = Path("/var/lib/philorag")
_ACCOUNTS = ("philorag", "postgres", "_postgres", "nobody")
# macOS allows 104 bytes for "<directory>/.s.PGSQL.5432" and its final NUL, Linux 108.
_SOCKET_DIRECTORY_BYTES = 85
# libpq and SQLAlchemy read a comma in a host as a list of hosts.
_PLAIN_PATH = re.compile(r"[\w/. ~+@-]+", re.ASCII)


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int


@dataclass(frozen=True)
class Places:
    """*home* keeps the secret and the locks, *storage* what the server itself must read and write.

    The two differ for root only, whose folders the server's *account* can't enter.
    """

    home: Path
    storage: Path
    account: Account | None

    @property
    def key(self) -> str:
        return _key(self.home)

    @property
    def data(self) -> Path:
        return self.storage / "pgdata"

    @property
    def log(self) -> Path:
        return self.storage / "server.log"

    @property
    def secret(self) -> Path:
        return self.home / "secret"

    @property
    def locks(self) -> Path:
        return self.home / "locks"

    @property
    def initialised(self) -> bool:
        return (self.data / "PG_VERSION").exists()


def _key(home: Path) -> str:
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def locate(home: Path) -> Places:
    home = home.expanduser().resolve()
    if sys.platform == "win32" or os.geteuid() != 0:
        return Places(home, home, None)
    if (home / "pgdata").exists():
        raise ConfigurationError(
            "This data folder holds the database of an ordinary account. Run philorag as that account, not as root."
        )
    storage = SERVICE_ROOT / _key(home)
    return Places(home, storage, _owner(storage) or _service_account())


def prepare(places: Places) -> None:
    """Make the folders; both stay when they exist."""
    places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    private_directory(places.locks, None)
    if places.account is not None:
        service_root()
        private_directory(places.storage, places.account)


def service_root() -> Path:
    """Root's shared folder, refused when another account could put something into it."""
    with suppress(FileExistsError):
        SERVICE_ROOT.mkdir(mode=0o711, parents=True)
        SERVICE_ROOT.chmod(0o711)
    status = SERVICE_ROOT.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o023 != 0o001:
        raise ConfigurationError(
            f"{SERVICE_ROOT} must be a folder of root's that others may enter but not write to (mode 0711)."
        )
    return SERVICE_ROOT


def socket_directory(places: Places) -> Path:
    """A folder that only the server's account can enter, with a path short and plain enough for every client."""
    name = f"philorag-{places.key}"
    choices = (places.storage / "run", Path(tempfile.gettempdir(), name), Path("/tmp", name))  # noqa: S108 - verified
    path = next(choice for choice in choices if _fits(choice) or choice is choices[-1])
    private_directory(path, places.account)
    return path


def private_directory(path: Path, account: Account | None) -> None:
    """Make *path* with mode 0700, or take it over when it is a real folder of the account's own."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    # Owned by root: an earlier start was killed before it could hand the folder over.
    if account and stat.S_ISDIR(status.st_mode) and status.st_uid == 0:
        own(path, account)
    elif not stat.S_ISDIR(status.st_mode) or not _owned_by(status, account):
        raise ConfigurationError(f"{path} is not a folder of the server's own account. Remove it and start again.")
    path.chmod(0o700)


def write_private(path: Path, text: str, account: Account | None) -> None:
    """Replace *path* in one step by a file of mode 0600; a link that stands there is replaced, not followed."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        own(Path(temporary), account)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def own(path: Path, account: Account | None) -> None:
    if account is not None and sys.platform != "win32":
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _owned_by(status: os.stat_result, account: Account | None) -> bool:
    if sys.platform == "win32":
        return True
    return status.st_uid == (account.uid if account else os.geteuid())


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= _SOCKET_DIRECTORY_BYTES and _PLAIN_PATH.fullmatch(str(path)) is not None


def _owner(path: Path) -> Account | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return Account(status.st_uid, status.st_gid) if status.st_uid != 0 else None


def _service_account() -> Account:
    if sys.platform != "win32":
        import pwd  # noqa: PLC0415 - POSIX only

        for name in _ACCOUNTS:
            with suppress(KeyError):
                entry = pwd.getpwnam(name)
                return Account(entry.pw_uid, entry.pw_gid)
    raise ConfigurationError(
        "PostgreSQL refuses to run as root, and there is no account named philorag, postgres or nobody to run it as. "
        "Create one, or run philorag as an ordinary user."
    )
