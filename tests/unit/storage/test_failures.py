"""From drivers' exceptions to the contract's reasons."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from philorag.errors import DatabaseUnavailable
from philorag.storage.failures import database_errors, of_database, unavailable

UNREACHABLE: list[Exception] = [
    ConnectionRefusedError(),
    FileNotFoundError("no socket"),
    TimeoutError(),
    PoolTimeout(),
    asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    asyncpg.InterfaceError("connection is closed"),
    asyncpg.InvalidCatalogNameError('database "x" does not exist'),
    asyncpg.AdminShutdownError("terminating connection due to administrator command"),
    asyncpg.CannotConnectNowError("the database system is starting up"),
    asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    asyncpg.ClientConfigurationError("invalid DSN"),
    DBAPIError("select 1", {}, Exception("gone"), connection_invalidated=True),
]
AUTH: list[Exception] = [
    asyncpg.InvalidPasswordError("password authentication failed"),
    asyncpg.InvalidAuthorizationSpecificationError('role "x" does not exist'),
    asyncpg.InsufficientPrivilegeError("permission denied for schema public"),
]
MISSING_EXTENSION: list[Exception] = [
    asyncpg.FeatureNotSupportedError('extension "vector" is not available'),
    asyncpg.UndefinedFileError('could not open extension control file "vector.control"'),
    asyncpg.InsufficientPrivilegeError('permission denied to create extension "vector"'),
]
OURS: list[Exception] = [
    asyncpg.DataError("invalid input for query argument $1: value out of int64 range"),
    asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
    asyncpg.InsufficientPrivilegeError('new row violates row-level security policy for table "documents"'),
    asyncpg.UniqueViolationError("duplicate key value"),
    asyncpg.UndefinedTableError('relation "x" does not exist'),
    asyncpg.FeatureNotSupportedError("COPY FROM not supported with row-level security"),
    IntegrityError("insert", {}, Exception("duplicate key")),
    InvalidRequestError("no such thing"),
]


def understood(error: Exception) -> DatabaseUnavailable:
    failure = unavailable(error)
    assert failure is not None
    return failure


def shown(errors: list[Exception]) -> Any:
    return pytest.mark.parametrize("error", errors, ids=lambda error: f"{type(error).__name__}-{error}"[:50])


@shown(UNREACHABLE)
def test_what_may_pass_by_itself_is_unreachable(error):
    """A server, a database or a connection that isn't there now is `unreachable`."""
    assert understood(error).reason == "unreachable"


@shown(AUTH)
def test_what_the_server_refuses_to_this_user_is_auth(error):
    """A refused password, user or right is `auth`."""
    assert understood(error).reason == "auth"


@shown(MISSING_EXTENSION)
def test_an_extension_that_cannot_be_had_is_named(error):
    """pgvector that isn't installed, or that this user may not install, is `missing_extension`."""
    failure = understood(error)
    assert failure.reason == "missing_extension"
    assert "pgvector" in failure.message


@shown(OURS)
def test_a_mistake_of_ours_is_not_blamed_on_the_database(error):
    """Wrong arguments, broken constraints and refused rows stay what they are."""
    assert unavailable(error) is None


@pytest.mark.parametrize("link", ["orig", "__cause__"])
def test_causes_are_found_behind_wrappers(link):
    """What a wrapper hides in `orig` or `__cause__` decides."""
    wrapper = RuntimeError("wrapped")
    setattr(wrapper, link, asyncpg.InvalidPasswordError("no"))
    assert understood(wrapper).reason == "auth"


def test_messages_hold_no_secret():
    """Details that the server adds to a refusal don't reach the caller."""
    error = asyncpg.InsufficientPrivilegeError("permission denied for schema public")
    error.detail = "the row was secret"
    assert "secret" not in understood(error).message


def test_the_context_raises_with_the_cause_attached():
    """`database_errors` chains the driver's exception."""
    cause = ConnectionRefusedError()
    with pytest.raises(DatabaseUnavailable) as caught, database_errors():
        raise cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("error", [asyncpg.UniqueViolationError("duplicate"), ValueError("ours")])
def test_the_context_lets_everything_else_pass(error):
    """`database_errors` changes nothing that isn't about reaching the database."""
    with pytest.raises(type(error)), database_errors():
        raise error


def test_an_operating_system_error_beside_the_database_is_not_of_it():
    """A file that is missing is the database's fault only inside a database call."""
    assert not of_database(FileNotFoundError())
    assert of_database(asyncpg.InterfaceError("connection is closed"))
    assert not of_database(None)
