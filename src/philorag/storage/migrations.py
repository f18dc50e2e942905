"""Bringing a database to this release's schema, under a lock so that two starting gateways don't race."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import text

from philorag.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["HEAD", "current_revision", "migrate"]

HEAD = "0001"
_LOCK = 7_483_000


async def current_revision(connection: AsyncConnection) -> str | None:
    """The revision that the database is at; None for an empty one."""
    if await connection.scalar(text("select to_regclass('alembic_version')")) is None:
        return None
    revision: str | None = await connection.scalar(text("select version_num from alembic_version"))
    return revision


async def migrate(connection: AsyncConnection) -> None:
    """Upgrade to `HEAD` in one transaction that the caller commits.

    Raises `DatabaseUnavailable` (`schema_newer`) when a later release has been here.
    """
    await connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    revision = await current_revision(connection)
    if revision == HEAD:
        return
    if revision is not None and revision > HEAD:
        raise DatabaseUnavailable(
            f"The database is at schema {revision}, made by a newer philorag; this one knows up to {HEAD}. "
            "Upgrade philorag, or choose another database.",
            reason="schema_newer",
        )
    await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - a third of a second that only a migrating start pays
    from alembic.config import Config  # noqa: PLC0415 - likewise

    config = Config()
    config.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _scripts() -> Path:
    package = Path(__file__).resolve().parent.parent
    packed = package / "_migrations"
    return packed if packed.is_dir() else package.parent.parent / "alembic"
