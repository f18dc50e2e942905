from __future__ import annotations

from sqlalchemy import func, insert, select

from philorag.storage.repositories.base import Repository
from philorag.storage.tables import roots

__all__ = ["RootRepository"]


class RootRepository(Repository):
    """Folders outside the source folder that were ingested from the command line, by name."""

    async def names(self) -> dict[str, str]:
        """The registered name of each folder."""
        query = select(roots.c.folder, roots.c.name).where(roots.c.library_id == self._library_id)
        return {row.folder: row.name for row in await self._connection.execute(query)}

    async def name_of(self, folder: str, wanted: str) -> str:
        """The registered name of *folder*; a new one is called *wanted*, with a number when that is taken."""
        await self._connection.execute(select(func.pg_advisory_xact_lock(7_483_003, func.hashint8(self._library_id))))
        names = await self.names()
        if folder in names:
            return names[folder]
        name, number = wanted, 2
        while name in names.values():
            name, number = f"{wanted}-{number}", number + 1
        row = {"library_id": self._library_id, "name": name, "folder": folder}
        await self._connection.execute(insert(roots).values(**row))
        return name
