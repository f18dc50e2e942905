"""Which embedding model the settings choose. Each is imported only when it is the one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from philorag.embedding.openai import OpenAIEmbedder
    from philorag.embedding.protocol import Embedder
    from philorag.settings import Settings

__all__ = ["open_embedder", "open_endpoint"]


def open_embedder(settings: Settings) -> Embedder:
    """Load the configured model; takes a second or more. Raises `ConfigurationError`, `EmbeddingFailed`."""
    if settings.uses_embedding_endpoint:
        return open_endpoint(settings)
    from philorag.embedding.local import LocalEmbedder  # noqa: PLC0415 - only the chosen provider is imported

    return LocalEmbedder(threads=settings.embedding_threads)


def open_endpoint(settings: Settings) -> OpenAIEmbedder:
    """The configured endpoint. Raises `EmbeddingFailed` when its dimensions can't be found."""
    from philorag.embedding.openai import OPENAI_URL, Endpoint, OpenAIEmbedder  # noqa: PLC0415 - only the chosen provider is imported

    return OpenAIEmbedder(
        Endpoint(
            model=settings.embedding_model,
            base_url=settings.embedding_base_url or OPENAI_URL,
            api_key=settings.embedding_api_key,
            dimensions=settings.embedding_dimensions,
            batch=settings.embedding_batch,
            query_prefix=settings.embedding_query_prefix,
            passage_prefix=settings.embedding_passage_prefix,
        )
    )
