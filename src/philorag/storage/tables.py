"""The tables as SQLAlchemy sees them. The migrations make them; a test holds the two together."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Date, DateTime, FetchedValue, Integer, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import UserDefinedType

__all__ = [
    "Vector",
    "chunk_embeddings",
    "chunks",
    "document_tags",
    "documents",
    "embedding_spaces",
    "jobs",
    "lex_postings",
    "lex_statistics",
    "libraries",
    "metadata",
    "roots",
]

metadata = MetaData()


class Vector(UserDefinedType[Any]):
    """pgvector's `vector` without fixed length; asyncpg's codec takes numpy arrays and gives pgvector's own."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "vector"


def _moment(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


libraries = Table(
    "libraries",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", Text, nullable=False),
    Column("settings", JSONB, nullable=False),
    Column("active_space_id", BigInteger),
    _moment("created_at"),
)

embedding_spaces = Table(
    "embedding_spaces",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("revision", Text, nullable=False),
    Column("dimensions", Integer, nullable=False),
    Column("folding", Text, nullable=False),
    Column("calibration", JSONB),
    _moment("created_at"),
)

documents = Table(
    "documents",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("id", BigInteger, primary_key=True, server_default=FetchedValue()),
    Column("kind", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("source_uri", Text, nullable=False),
    Column("path", Text),
    Column("title", Text),
    Column("authors", JSONB, nullable=False),
    Column("publication_date", Text),
    Column("publication_day", Date),
    Column("language", Text),
    Column("category", Text),
    Column("tags", JSONB, nullable=False),
    Column("metadata_jsonb", JSONB, nullable=False),
    Column("extracted_text_hash", Text),
    Column("content", Text, nullable=False),
    Column("content_sha256", Text),
    Column("source_sha256", Text),
    Column("source_size", BigInteger),
    Column("source_mtime_ns", BigInteger),
    Column("word_count", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("pipeline_version", Text),
    Column("user_id", Text),
    Column("task_id", Text),
    _moment("created_at"),
    _moment("modified_at"),
    _moment("last_processed_at", nullable=True),
)

document_tags = Table(
    "document_tags",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("document_id", BigInteger, primary_key=True),
    Column("tag", Text, primary_key=True),
)

chunks = Table(
    "chunks",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("id", BigInteger, primary_key=True, server_default=FetchedValue()),
    Column("document_id", BigInteger, nullable=False),
    Column("chunk_index", Integer, nullable=False),
    Column("chunk_text", Text, nullable=False),
    Column("cleaned_text", Text, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("char_start", Integer, nullable=False),
    Column("char_end", Integer, nullable=False),
    Column("token_count", Integer, nullable=False),
    Column("layer", Text, nullable=False),
    Column("language", Text),
    Column("analyzer", Text, nullable=False),
    Column("locator", JSONB, nullable=False),
    Column("section_path", JSONB, nullable=False),
)

chunk_embeddings = Table(
    "chunk_embeddings",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("chunk_id", BigInteger, primary_key=True),
    Column("space_id", BigInteger, primary_key=True),
    Column("embedding", Vector, nullable=False),
)

lex_postings = Table(
    "lex_postings",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("analyzer", Text, primary_key=True),
    Column("term", Text, primary_key=True),
    Column("first_chunk", BigInteger, primary_key=True),
    Column("last_chunk", BigInteger, nullable=False),
    Column("postings", ARRAY(BigInteger), nullable=False),
)

lex_statistics = Table(
    "lex_statistics",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("analyzer", Text, primary_key=True),
    Column("chunks", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("uncompacted", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("id", BigInteger, primary_key=True, server_default=FetchedValue()),
    Column("kind", Text, nullable=False),
    Column("arguments_hash", Text, nullable=False),
    Column("arguments", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    Column("progress", JSONB, nullable=False),
    Column("failures", JSONB, nullable=False),
    Column("result", JSONB),
    _moment("created_at"),
    _moment("updated_at"),
    _moment("finished_at", nullable=True),
)

roots = Table(
    "roots",
    metadata,
    Column("library_id", BigInteger, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("folder", Text, nullable=False),
    _moment("created_at"),
)
