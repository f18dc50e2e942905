"""What every embedding provider offers to ingestion and retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

__all__ = ["Embedder", "SpaceIdentity"]


@dataclass(frozen=True, slots=True)
class SpaceIdentity:
    """What makes vectors comparable. Two vectors may be compared only if all of this is equal."""

    provider: str
    model: str
    revision: str
    dimensions: int
    folding: str


class Embedder(Protocol):
    """Turns passages and queries into vectors of one embedding space. Safe to call from several threads."""

    @property
    def space(self) -> SpaceIdentity: ...

    @property
    def max_tokens(self) -> int:
        """The longest passage in tokens, prefix and special tokens included, that isn't cut."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text in this space's own tokenizer, without prefix and special tokens."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors as the model makes them, of any length but zero, shape (len(texts), dimensions), float32.

        Compare them by their angle. Raises `EmbeddingFailed`.
        """
        ...

    def embed_query(self, text: str) -> Vectors:
        """One such vector, shape (dimensions,), float32. Raises `EmbeddingFailed`."""
        ...

    def close(self) -> None:
        """Give up what is only waiting, from any thread: what is under way fails with `EmbeddingFailed`."""
        ...
