"""What the storage tests share: passages and vectors without a model, raw connections, extra databases."""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import asyncpg
import numpy as np
from sqlalchemy import text

from philorag.embedding.protocol import SpaceIdentity
from philorag.model import Caller, DocumentFields, Locator, NewChunk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from numpy.typing import NDArray
    from sqlalchemy import TextClause
    from sqlalchemy.ext.asyncio import AsyncConnection

    from philorag.storage.database import Database
    from philorag.storage.unit_of_work import UnitOfWork

Parameters = dict[str, Any]
SPACE = SpaceIdentity(provider="test", model="eight", revision="1", dimensions=8, folding="none")
SEPARATOR = "\n\n"


def vector_of(text: str) -> NDArray[np.float32]:
    """A unit vector that is always the same for *text* and unlike any other's."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    vector = np.random.default_rng(seed).normal(size=8)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def passage(
    text: str, start: int = 0, *, language: str | None = "en", index: int | None = None, layer: Any = "main"
) -> NewChunk:
    return NewChunk(
        text=text,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        token_count=len(text.split()),
        language=language,
        locator=Locator(char_start=start, char_end=start + len(text), layer=layer),
        index=index,
    )


def passages(texts: Sequence[str], language: str | None = "en") -> list[NewChunk]:
    """*texts* as the passages of a document in which blank lines part them."""
    start, made = 0, []
    for body in texts:
        made.append(passage(body, start, language=language))
        start += len(body) + len(SEPARATOR)
    return made


def fields(source_uri: str | None = None, **more: Any) -> DocumentFields:
    return DocumentFields(**{"origin": "philograph_ingest", "source_uri": source_uri or f"file:{uuid4().hex}", **more})


def all_vectors(chunks: Sequence[NewChunk]) -> dict[int, NDArray[np.float32]]:
    return {position: vector_of(chunk.text) for position, chunk in enumerate(chunks)}


async def put(
    work: UnitOfWork,
    texts: Sequence[str] | Sequence[NewChunk],
    described: DocumentFields | None = None,
    vectors: Mapping[str, NDArray[np.float32]] | None = None,
) -> int:
    """Store *texts* as a document with its passages and vectors; returns its id."""
    chunks = [one if isinstance(one, NewChunk) else passage(one) for one in texts]
    saved = await work.documents.save(described or fields(), SEPARATOR.join(chunk.text for chunk in chunks))
    space = await work.libraries.adopt_space(SPACE)
    known = vectors or {}
    given = {n: known.get(chunk.text, vector_of(chunk.text)) for n, chunk in enumerate(chunks)}
    await work.chunks.replace(saved.id, chunks, given, space.id)
    return saved.id


async def stored(database: Database, caller: Caller, *texts: str | NewChunk, **more: Any) -> int:
    """`put` in a unit of work of its own, with the document's fields in *more*."""
    async with database.unit_of_work(caller) as work:
        document_id = await put(work, list(texts), fields(**more))  # type: ignore[arg-type]  # a mixture is fine
        await work.commit()
    return document_id


async def open_caller(database: Database) -> Caller:
    """A caller of a library that nobody else has."""
    name = f"test-{uuid4().hex}"
    return Caller(user_id="tester", library_id=await database.open_library(name), library=name)


@asynccontextmanager
async def connected(parameters: Parameters, *, role: str | None = None) -> AsyncIterator[asyncpg.Connection]:
    """A raw connection, beside everything that philorag does."""
    connection = await asyncpg.connect(**parameters, server_settings={"role": role} if role else None, timeout=20)
    try:
        yield connection
    finally:
        await connection.close(timeout=20)


@asynccontextmanager
async def new_database(server: Parameters, name: str, options: str = "") -> AsyncIterator[Parameters]:
    """An extra database on *server*, gone afterwards; *options* goes to CREATE DATABASE."""
    async with connected(server) as connection:
        await connection.execute(f'create database "{name}" {options}')
        try:
            yield {**server, "database": name}
        finally:
            await connection.execute(f'drop database "{name}" with (force)')


class Recorder:
    """Stands before a repository's connection and keeps what it was asked, so that it can be explained."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.asked: list[tuple[TextClause, dict[str, Any]]] = []

    async def execute(self, statement: TextClause, parameters: dict[str, Any]) -> Any:
        self.asked.append((statement, parameters))
        return await self._connection.execute(statement, parameters)

    async def scalar(self, statement: TextClause, parameters: dict[str, Any]) -> Any:
        return (await self.execute(statement, parameters)).scalar()

    async def plan(self) -> dict[str, Any]:
        """The plan of what was asked last."""
        statement, parameters = self.asked[-1]
        explained = text(f"explain (format json, costs off) {statement.text}")
        explained = explained.bindparams(*statement._bindparams.values())
        found: list[dict[str, dict[str, Any]]] = await self._connection.scalar(explained, parameters)
        return found[0]["Plan"]


def recorded(work: UnitOfWork) -> Recorder:
    """What *work* asks for when it searches."""
    recorder = Recorder(work.passages._connection)
    work.passages._connection = cast(Any, recorder)
    return recorder


def mentioned(plan: dict[str, Any], what: str) -> set[str]:
    """Every value of *what*, such as "Relation Name", in a plan."""
    found = {plan[what]} if what in plan else set()
    return found.union(*(mentioned(part, what) for part in plan.get("Plans", ())))
