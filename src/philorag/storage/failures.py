"""From a driver's exception to `DatabaseUnavailable`, in one place."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from philorag.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["database_errors", "of_database", "unavailable"]

_AUTH = (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)
_EXTENSION = (asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFileError, asyncpg.InsufficientPrivilegeError)
_UNREACHABLE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ClientConfigurationError,
    PoolTimeout,
)


def of_database(error: BaseException | None) -> bool:
    """Whether *error* came from the database or its driver, and not from what was done beside it."""
    return isinstance(error, SQLAlchemyError | asyncpg.PostgresError | asyncpg.InterfaceError)


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn a failure to reach the database into `DatabaseUnavailable`; only database calls belong inside."""
    try:
        yield
    except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        failure = unavailable(error)
        if failure is None:
            raise
        raise failure from error


def unavailable(error: BaseException) -> DatabaseUnavailable | None:
    """What *error* means for the caller; None when the database is fine and the error is ours."""
    causes = list(_causes(error))
    if any(isinstance(cause, _AUTH) for cause in causes):
        return DatabaseUnavailable(
            "PostgreSQL refused the user or the password. Check DATABASE_URL, or PGUSER and PGPASSWORD.", reason="auth"
        )
    if any(isinstance(cause, _EXTENSION) and "extension" in str(cause) for cause in causes):
        return DatabaseUnavailable(
            "The extension `vector` (pgvector 0.8 or newer) is missing. Install it on the database server, then run "
            "`philorag db upgrade` as a user who may create extensions.",
            reason="missing_extension",
        )
    for cause in causes:
        if isinstance(cause, asyncpg.InsufficientPrivilegeError) and "row-level security" not in str(cause):
            return DatabaseUnavailable(
                f"PostgreSQL does not allow its user what is needed ({cause.args[0]}). Grant it, or name the schema's "
                "owner in PHILORAG_MIGRATE_URL.",
                reason="auth",
            )
    if any(isinstance(cause, _UNREACHABLE) or _lost(cause) for cause in causes):
        return DatabaseUnavailable(
            "The database can't be reached. Check that PostgreSQL runs and that its address is right, then try again.",
            reason="unreachable",
        )
    return None


def _lost(error: BaseException) -> bool:
    if isinstance(error, DBAPIError):
        return error.connection_invalidated
    # Of asyncpg's InterfaceErrors, a wrong argument is ours; a connection that is gone is not.
    return isinstance(error, asyncpg.InterfaceError) and "closed" in str(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "orig", None) or error.__cause__
