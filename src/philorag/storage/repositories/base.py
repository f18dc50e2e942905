from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["Repository"]


class Repository:
    """Reads and writes one library's rows inside the caller's transaction; never commits."""

    def __init__(self, connection: AsyncConnection, library_id: int) -> None:
        self._connection = connection
        self._library_id = library_id

    async def _copy(self, table: str, columns: Sequence[str], records: Sequence[Sequence[Any]]) -> None:
        """COPY *records* into a temporary *table*: COPY refuses tables with row security."""
        raw = await self._connection.get_raw_connection()
        driver: asyncpg.Connection[Any] | None = raw.driver_connection
        assert driver is not None
        await driver.copy_records_to_table(table, records=records, columns=columns)
