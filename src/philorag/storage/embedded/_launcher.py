from __future__ import annotations

import atexit
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Self

from philorag.errors import ConfigurationError, DatabaseUnavailable
from philorag.storage.embedded import _binaries, _cluster, _places, _postmaster
from philorag.storage.embedded._references import references

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class ConnectionParameters:
    """What a driver needs, named as `asyncpg.connect` names it; *host* may be the folder of a socket."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str


class EmbeddedPostgres:
    """One PostgreSQL for all processes that use the same *home*.

    *settings* are PostgreSQL's own and count for the process that starts the server; *bin_dir* holds its programs
    when they are not the installed package's; *start_timeout* is in seconds. All methods block.
    """

    def __init__(
        self,
        home: Path,
        *,
        settings: Mapping[str, str] = _NO_SETTINGS,
        bin_dir: Path | None = None,
        start_timeout: float = 300.0,
    ) -> None:
        _cluster.check_settings(settings)
        self._places = _places.locate(home)
        self._settings = dict(settings)
        self._given_bin_dir = bin_dir
        self._timeout = start_timeout
        self._references = references(self._places.locks)
        self._holder: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def storage(self) -> Path:
        """The folder of cluster, socket and log: *home* itself, or for root one under /var/lib/philorag."""
        return self._places.storage

    @property
    def bin_dir(self) -> Path:
        """The programs (psql, pg_dump, ...) that the server's account can execute."""
        return self._binaries.directory

    @property
    def pid(self) -> int | None:
        found = _postmaster.find(self._places.data)
        return found.pid if found else None

    def start(self) -> ConnectionParameters:
        """Join the running server or start it, making the cluster first if there is none.

        Raises `ConfigurationError` for what only a person can change, `DatabaseUnavailable` for what may pass.
        """
        try:
            _places.prepare(self._places)
        except OSError as error:
            raise ConfigurationError(f"The data folder can't be used: {error.strerror}.") from error
        try:
            with self._references.exclusive(self._timeout):
                return self._started()
        except OSError as error:
            raise DatabaseUnavailable(
                f"The embedded PostgreSQL could not be started: {error.strerror}. Check the disk, then try again.",
                reason="unreachable",
            ) from error

    def ensure_running(self) -> ConnectionParameters:
        """After a lost connection: start the server again if it died. A second `start` does the same."""
        return self.start()

    def stop(self) -> None:
        """Give up this object's use of the server; the last living process to do so stops it."""
        # A forked child inherits the object but not the reference.
        if self._holder != os.getpid():
            return
        with self._references.exclusive(self._timeout):
            self._leave()

    @cached_property
    def _binaries(self) -> _binaries.Binaries:
        return _binaries.find(self._given_bin_dir, self._places.account)

    def _started(self) -> ConnectionParameters:
        joining = self._holder != os.getpid()
        if joining:
            self._join()
        try:
            server = self._server()
            return ConnectionParameters(server.host, server.port, _cluster.ROLE, self._password(), _cluster.DATABASE)
        except BaseException:
            if joining:
                self._leave()
            raise

    def _join(self) -> None:
        self._references.add()
        self._holder = os.getpid()
        atexit.register(self.stop)

    def _leave(self) -> None:
        self._holder = None
        atexit.unregister(self.stop)
        if self._references.drop():
            self._stop_server()

    def _server(self) -> _postmaster.Postmaster:
        running = _postmaster.settled(self._places.data, self._timeout)
        if running:
            return running
        if self._places.initialised:
            _cluster.check_version(self._places, self._binaries)
            self._restore_secret()
        else:
            self._create()
        _cluster.write_settings(self._places, self._settings)
        return _postmaster.launch(self._places, self._binaries, self._timeout)

    def _create(self) -> None:
        if self._places.secret.exists():
            raise ConfigurationError(
                f"This data folder was in use before, but its database is no longer in {self._places.storage}. "
                "Bring it back, or delete the file secret in the data folder to begin with an empty one."
            )
        password = secrets.token_urlsafe(24)
        _cluster.create(self._places, self._binaries, password, durable=self._settings.get("fsync") != "off")
        # Last, so that a secret without a cluster always means a loss and never an interrupted start.
        _places.write_private(self._places.secret, password, None)

    def _restore_secret(self) -> None:
        if not self._places.secret.exists():
            password = secrets.token_urlsafe(24)
            _cluster.reset_password(self._places, self._binaries, password)
            _places.write_private(self._places.secret, password, None)

    def _password(self) -> str:
        try:
            return self._places.secret.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigurationError(
                "The file secret in the data folder can't be read. Stop every philorag that uses the folder, and "
                "start it as the account that owns it."
            ) from error

    def _stop_server(self) -> None:
        server = _postmaster.find(self._places.data)
        if server is None:
            return
        _postmaster.stop(self._places, self._binaries)
        folder = Path(server.host)
        if folder.is_absolute() and self._places.storage not in folder.parents:
            with suppress(OSError):
                folder.rmdir()
