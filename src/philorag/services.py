"""The composition root: everything that tools and the command line stand on, opened once."""

from __future__ import annotations

import asyncio
import getpass
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from philorag.embedding.providers import open_embedder
from philorag.errors import ConfigurationError
from philorag.ingestion.chunking import ChunkLimits
from philorag.ingestion.guard import ReaderPool
from philorag.ingestion.pipeline import DocumentPipeline
from philorag.ingestion.service import IngestService
from philorag.library.documents import DocumentService
from philorag.library.store import StoreService
from philorag.model import Caller
from philorag.retrieval.service import SearchService
from philorag.settings import ENDPOINT_CHUNK_SIZE, LOCAL_CHUNK_SIZE
from philorag.storage.database import Database

if TYPE_CHECKING:
    from types import TracebackType

    from philorag.embedding.protocol import Embedder
    from philorag.settings import Settings

__all__ = ["Services", "chunk_limits"]

_LOCAL_LIMITS = ChunkLimits(size=LOCAL_CHUNK_SIZE, overlap=32)
_ENDPOINT_LIMITS = ChunkLimits(size=ENDPOINT_CHUNK_SIZE, overlap=100)
_READERS = 2
# What a model adds to a passage: its prefix and its special tokens, with room to spare.
_PREFIX_ROOM = 32
_MEGABYTE = 1 << 20


def chunk_limits(settings: Settings, embedder: Embedder) -> ChunkLimits:
    """The configured passage lengths. Raises `ConfigurationError` when the model can't take them."""
    usual = _ENDPOINT_LIMITS if embedder.space.provider == "openai" else _LOCAL_LIMITS
    longest = embedder.max_tokens - _PREFIX_ROOM
    fitting = max(1, min(usual.size, longest))
    size = settings.chunk_size or fitting
    overlap = settings.chunk_overlap
    if overlap is None:
        overlap = min(usual.overlap * fitting // usual.size, size - 1)
    if overlap >= size:
        raise ConfigurationError(f"CHUNK_OVERLAP ({overlap}) must be smaller than CHUNK_SIZE ({size}).")
    if size > longest:
        raise ConfigurationError(
            f"CHUNK_SIZE ({size}) is more than the model {embedder.space.model} can take: at most {longest} tokens."
        )
    return ChunkLimits(size=size, overlap=overlap)


@dataclass(frozen=True, kw_only=True)
class Services:
    """What the gateway does, without a protocol. Open with `Services.open`, close when done."""

    settings: Settings
    database: Database
    embedder: Embedder
    documents: DocumentService
    store: StoreService
    search: SearchService
    ingestion: IngestService
    readers: ReaderPool
    pipeline: DocumentPipeline

    @classmethod
    async def open(cls, settings: Settings, embedder: Embedder | None = None) -> Self:
        """Start the store and the model, side by side; *embedder* is a model that is loaded already, and closes too.

        Raises `DatabaseUnavailable`, `EmbeddingFailed` or `ConfigurationError`.
        """
        loading = asyncio.create_task(_loaded(settings, embedder))
        try:
            database = await Database.open(settings)
        except BaseException:
            await asyncio.gather(loading, return_exceptions=True)
            raise
        try:
            return cls._compose(settings, database, await loading)
        except BaseException:
            await database.close()
            raise

    @classmethod
    def _compose(cls, settings: Settings, database: Database, embedder: Embedder) -> Self:
        pipeline = DocumentPipeline(database, embedder, chunk_limits(settings, embedder), settings.embedding_batch)
        readers = ReaderPool(_READERS, settings.reader_timeout, settings.reader_memory * _MEGABYTE)
        return cls(
            settings=settings,
            database=database,
            embedder=embedder,
            documents=DocumentService(database),
            store=StoreService(database, embedder),
            search=SearchService(database, embedder),
            ingestion=IngestService(database, pipeline, readers, settings.source_folder),
            readers=readers,
            pipeline=pipeline,
        )

    async def local_caller(self) -> Caller:
        """The one user of stdio and the command line, in the configured library."""
        library = self.settings.library
        library_id = await self.database.open_library(library)
        return Caller(user_id=_user(), library_id=library_id, library=library)

    async def close(self) -> None:
        await self.readers.close()
        self.embedder.close()
        await self.pipeline.close()
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def _loaded(settings: Settings, embedder: Embedder | None) -> Embedder:
    if embedder is not None:
        return embedder
    return await asyncio.to_thread(open_embedder, settings)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "local"
