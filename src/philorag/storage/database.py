"""The store: which PostgreSQL it is, its schema, its connections, and units of work on it."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import asyncpg
from pgvector.asyncpg import register_vector
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from philorag.errors import ConfigurationError, DatabaseUnavailable
from philorag.storage.embedded import EmbeddedPostgres
from philorag.storage.failures import database_errors
from philorag.storage.migrations import HEAD, migrate
from philorag.storage.repositories.jobs import JOB_LOCKS
from philorag.storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from philorag.model import Caller
    from philorag.settings import Settings

__all__ = ["SERVING_ROLE", "Database", "StoreStatus"]

SERVING_ROLE = "philorag_app"
_LOG = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What serves the data, for status and doctor."""

    kind: Literal["embedded", "external"]
    server_version: str
    schema_revision: str | None
    schema_head: str
    extensions: dict[str, str]
    serving_role: str
    row_security: bool


class Database:
    """An open store. `open` starts and migrates what it needs; `unit_of_work` is the one way to the data."""

    def __init__(
        self,
        engine: AsyncEngine,
        parameters: dict[str, Any],
        *,
        kind: Literal["embedded", "external"],
        embedded: EmbeddedPostgres | None = None,
    ) -> None:
        self.kind = kind
        self._engine = engine
        self._parameters = parameters
        self._embedded = embedded

    @classmethod
    async def open(cls, settings: Settings) -> Database:
        """Start the embedded server or reach the operator's, bring its schema up to date, and connect.

        Raises `DatabaseUnavailable`, or `ConfigurationError` when the embedded cluster is of another PostgreSQL or
        when whoever serves would not be bound by row security.
        """
        if not settings.uses_embedded_database:
            serving, owner = _external(settings)
            return cls(await _prepare(serving, owner), serving, kind="external")
        embedded = EmbeddedPostgres(settings.data_dir / "postgres")
        parameters = asdict(await asyncio.to_thread(embedded.start))
        try:
            return cls(await _prepare(parameters, parameters), parameters, kind="embedded", embedded=embedded)
        except BaseException:
            await asyncio.to_thread(embedded.stop)
            raise

    def unit_of_work(self, caller: Caller) -> UnitOfWork:
        """A transaction in the name of *caller*, to be entered with `async with`."""
        return UnitOfWork(self._connect, caller)

    async def open_library(self, name: str) -> int:
        """The id of the library called *name*, made if it isn't there."""
        async with self._plain() as connection:
            library_id: int = await connection.scalar(text("select philorag_open_library(:name)"), {"name": name})
            await connection.commit()
            return library_id

    @asynccontextmanager
    async def working_on(self, job_id: int) -> AsyncIterator[None]:
        """Show others that somebody works on a job, until the block ends or this process does, however it ends."""
        key = {"space": JOB_LOCKS, "job": job_id % 2**31}
        async with self._plain() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text("select pg_advisory_lock(:space, :job)"), key)
            try:
                yield
            finally:
                # With a lost connection the lock is gone already.
                with suppress(DatabaseUnavailable), database_errors():
                    await connection.execute(text("select pg_advisory_unlock(:space, :job)"), key)

    async def index_space(self, space_id: int) -> None:
        """Build the vector index of a space if it isn't there; until then its search is exact."""
        async with self._plain() as connection:
            await connection.execute(text("select philorag_index_space(:space_id)"), {"space_id": space_id})
            await connection.commit()

    async def status(self) -> StoreStatus:
        """What is there now. Raises `DatabaseUnavailable`."""
        async with self._plain() as connection:
            found = (await connection.execute(_STATUS)).one()
            return StoreStatus(
                kind=self.kind,
                server_version=found.server_version,
                schema_revision=found.revision,
                schema_head=HEAD,
                extensions=dict(zip(found.extensions, found.extension_versions, strict=True)),
                serving_role=found.role,
                row_security=not found.bypasses,
            )

    async def close(self) -> None:
        """Give up the connections, and the embedded server when nobody else uses it."""
        await self._engine.dispose()
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)

    @asynccontextmanager
    async def _plain(self) -> AsyncIterator[AsyncConnection]:
        connection = await self._connect()
        try:
            with database_errors():
                yield connection
        finally:
            await connection.close()

    async def _connect(self) -> AsyncConnection:
        try:
            with database_errors():
                return await self._engine.connect()
        except DatabaseUnavailable:
            if self._embedded is None:
                raise
            _LOG.warning("The embedded PostgreSQL does not answer; starting it again")
        # It may listen somewhere else now; new connections read the parameters when they are made.
        self._parameters.update(asdict(await asyncio.to_thread(self._embedded.ensure_running)))
        with database_errors():
            return await self._engine.connect()


# One statement: whoever asks for the status should hear of the database, not wait for it.
_STATUS = text("""
    select current_user::text as role, current_setting('server_version') as server_version,
           (select rolbypassrls or rolsuper from pg_roles where rolname = current_user) as bypasses,
           (select version_num from alembic_version) as revision,
           array(select extname::text from pg_extension order by extname) as extensions,
           array(select extversion from pg_extension order by extname) as extension_versions
""")


# Since PostgreSQL 16 one may be a member of a role that one made, and still not be allowed to become it.
_MAY_SET = "case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end"
# Serving goes through the role, or under forced row security as the owner, or not at all.
_SERVING = text(f"""
    select coalesce(bool_or(has_table_privilege(r.oid, 'documents', 'select')), false) as ready,
           coalesce(bool_or(pg_has_role(coalesce(cast(:user as name), user), r.oid, {_MAY_SET})), false) as may_set,
           (select relforcerowsecurity from pg_class where oid = 'documents'::regclass) as forced
      from pg_roles r where r.rolname = :role
""")  # noqa: S608 - joined from constants


async def _prepare(serving: dict[str, Any], owner: dict[str, Any]) -> AsyncEngine:
    """Migrate as *owner*, then an engine that serves as the serving role where there is one."""
    with database_errors():
        user = await _user_of(serving) if serving != owner else None
        through_role = await _migrated(owner, user)
    if not through_role:
        _LOG.warning("The role %s can't be used: the tables' owner serves under forced row security", SERVING_ROLE)
    engine = _engine(serving, role=SERVING_ROLE if through_role else None)
    event.listen(engine.sync_engine, "connect", lambda dbapi, _: dbapi.run_async(register_vector))
    return engine


async def _migrated(owner: dict[str, Any], user: str | None) -> bool:
    engine = _engine(owner, role=None)
    try:
        async with engine.begin() as connection:
            await migrate(connection)
            return await _takes_role(connection, user)
    finally:
        await engine.dispose()


async def _takes_role(connection: AsyncConnection, user: str | None) -> bool:
    """Whether *user* (None is the owner) serves through the serving role, which it is given if need be."""
    found = (await connection.execute(_SERVING, {"role": SERVING_ROLE, "user": user})).one()
    if found.ready and (found.may_set or user is not None):
        if not found.may_set:
            await connection.execute(text(f"grant {SERVING_ROLE} to {_quoted(user or '')}"))
        return True
    if user is not None or not found.forced:
        raise ConfigurationError(
            f"The role {SERVING_ROLE} can't be used, and without it nothing keeps libraries apart. Before the first "
            f"start, let an administrator run `create role {SERVING_ROLE} nologin` and grant it to the schema's owner "
            "with admin option; or serve as the owner, without PHILORAG_MIGRATE_URL."
        )
    return False


async def _user_of(parameters: dict[str, Any]) -> str:
    connection = await asyncpg.connect(**parameters, timeout=_CONNECT_TIMEOUT_S)
    try:
        user: str = await connection.fetchval("select current_user::text")
        return user
    finally:
        await connection.close()


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _engine(parameters: dict[str, Any], *, role: str | None) -> AsyncEngine:
    # As a server setting the role survives every rollback; a SET ROLE on connect does not, and row security with it.
    server_settings = {
        "application_name": "philorag",
        "timezone": "UTC",
        "jit": "off",
        "hnsw.iterative_scan": "relaxed_order",
        "hnsw.ef_search": "100",
        **({"role": role} if role else {}),
    }

    async def connect() -> asyncpg.Connection[Any]:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            **parameters, server_settings=server_settings, timeout=_CONNECT_TIMEOUT_S
        )
        return connection

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, pool_pre_ping=True, pool_size=8, max_overflow=8
    )


def _external(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    if settings.database_url is not None:
        serving: dict[str, Any] = {"dsn": _plain_scheme(settings.database_url)}
    else:
        serving = {
            "host": settings.pg_host or "localhost",
            "port": settings.pg_port or 5432,
            "database": settings.pg_database or "philosophy_rag",
            "user": settings.pg_user or "rag_agent_user",
            "password": settings.pg_password,
        }
    owner = {"dsn": _plain_scheme(settings.migrate_url)} if settings.migrate_url else serving
    return serving, owner


def _plain_scheme(url: str) -> str:
    return re.sub(r"^postgres(ql)?(\+asyncpg)?://", "postgresql://", url)
