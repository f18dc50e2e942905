"""One transaction in the name of one caller, with the repositories that work inside it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from sqlalchemy import text

from philorag.errors import DatabaseUnavailable
from philorag.storage.failures import database_errors, of_database, unavailable
from philorag.storage.repositories.chunks import ChunkRepository
from philorag.storage.repositories.documents import DocumentRepository
from philorag.storage.repositories.jobs import JobRepository
from philorag.storage.repositories.libraries import LibraryRepository
from philorag.storage.repositories.passages import PassageRepository
from philorag.storage.repositories.postings import PostingsRepository
from philorag.storage.repositories.roots import RootRepository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from sqlalchemy.ext.asyncio import AsyncConnection

    from philorag.model import Caller

__all__ = ["UnitOfWork"]

_SET_CALLER = text("""
    select set_config('philorag.library_id', :library_id, true),
           set_config('philorag.user_id', :user_id, true),
           set_config('philorag.task_id', :task_id, true)
""")


class UnitOfWork:
    """Everything between `async with` and `commit()` happens, or nothing does.

    Raises `DatabaseUnavailable` when the store can't be reached.
    """

    documents: DocumentRepository
    chunks: ChunkRepository
    postings: PostingsRepository
    passages: PassageRepository
    libraries: LibraryRepository
    jobs: JobRepository
    roots: RootRepository

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection]], caller: Caller) -> None:
        self.caller = caller
        self._connect = connect

    async def __aenter__(self) -> Self:
        caller = self.caller
        settings = {"library_id": str(caller.library_id), "user_id": caller.user_id, "task_id": caller.task_id}
        self._connection = await self._connect()
        try:
            with database_errors():
                await self._connection.execute(_SET_CALLER, settings)
        except BaseException:
            await self._close()
            raise
        self._open_repositories()
        return self

    def _open_repositories(self) -> None:
        connection, library_id = self._connection, self.caller.library_id
        self.postings = PostingsRepository(connection, library_id)
        self.chunks = ChunkRepository(connection, library_id, self.postings)
        self.documents = DocumentRepository(connection, library_id, self.chunks)
        self.passages = PassageRepository(connection, library_id)
        self.libraries = LibraryRepository(connection, library_id)
        self.jobs = JobRepository(connection, library_id)
        self.roots = RootRepository(connection, library_id)

    async def commit(self) -> None:
        """Make what was done last. The unit of work is over after it."""
        with database_errors():
            await self._connection.commit()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()
        if error is not None and of_database(error) and (failure := unavailable(error)) is not None:
            raise failure from error

    async def _close(self) -> None:
        # A connection that died without SQLAlchemy noticing has nothing left to roll back.
        with suppress(DatabaseUnavailable), database_errors():
            await self._connection.close()
