"""The local model with a memory, so that a benchmark embeds a passage once in its life."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from typing import TYPE_CHECKING

import numpy as np

from philorag.embedding.local import LocalEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from philorag.embedding.protocol import SpaceIdentity, Vectors

__all__ = ["Remembering"]


class Remembering:
    """An `Embedder` that keeps the vectors of passages in *file*; queries are always embedded anew."""

    def __init__(self, embedder: LocalEmbedder, file: Path) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        file.parent.mkdir(parents=True, exist_ok=True)
        self._memory = sqlite3.connect(file, check_same_thread=False)
        self._memory.execute("create table if not exists vectors (key blob primary key, vector blob) without rowid")

    @property
    def space(self) -> SpaceIdentity:
        return self._embedder.space

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._embedder.count_tokens(texts)

    def embed_query(self, text: str) -> Vectors:
        return self._embedder.embed_query(text)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        keys = [self._key(text) for text in texts]
        vectors: list[Vectors | None] = [self._recall(key) for key in keys]
        missing = [number for number, vector in enumerate(vectors) if vector is None]
        if missing:
            fresh = self._embedder.embed_passages([texts[number] for number in missing])
            self._keep([(keys[number], vector.tobytes()) for number, vector in zip(missing, fresh, strict=True)])
            for number, vector in zip(missing, fresh, strict=True):
                vectors[number] = vector
        return np.array(vectors, np.float32).reshape(len(texts), self.space.dimensions)

    def close(self) -> None:
        self._embedder.close()
        self._memory.close()

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self.space}\0{text}".encode("utf-8", "surrogatepass")).digest()

    def _recall(self, key: bytes) -> Vectors | None:
        with self._lock:
            row = self._memory.execute("select vector from vectors where key = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], np.float32)

    def _keep(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        with self._lock:
            self._memory.executemany("insert or ignore into vectors values (?, ?)", rows)
            self._memory.commit()
