"""A library of ten thousand documents in a minute: real sentences in a new order, vectors near real ones."""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.libraries import collection
from philorag.model import DocumentFields, Locator, NewChunk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.libraries import Opened
    from philorag.storage.unit_of_work import UnitOfWork

__all__ = ["PASSAGES_EACH", "fill"]

PASSAGES_EACH = 5
_SENTENCES = 5
_TOGETHER = 100
_NOISE = 0.5
_SHORTEST = 20
_SEPARATOR = "\n\n"


async def fill(library: Opened, documents: int) -> None:
    """Bring *library* to that many documents, through the repositories; vectors are not those of the texts."""
    database, caller = library.services.database, library.caller
    async with database.unit_of_work(caller) as work:
        space = await work.libraries.adopt_space(library.services.embedder.space)
        stored = await work.passages.size() // PASSAGES_EACH
        await work.commit()
    sentences, centres = _material(library)
    for numbers in _batched(range(stored, documents), _TOGETHER):
        async with database.unit_of_work(caller) as work:
            for number in numbers:
                await _add(work, number, sentences, centres, space.id)
            await work.commit()
    if stored < documents:
        async with database.unit_of_work(caller) as work:
            await work.postings.compact()
            await work.commit()
    await database.index_space(space.id)


async def _add(
    work: UnitOfWork, number: int, sentences: Sequence[str], centres: NDArray[np.float32], space_id: int
) -> None:
    random = np.random.default_rng(number)
    chunks: list[NewChunk] = []
    position = 0
    for _ in range(PASSAGES_EACH):
        text = " ".join(sentences[at] for at in random.integers(len(sentences), size=_SENTENCES))
        digest = hashlib.sha256(text.encode()).hexdigest()
        locator = Locator(char_start=position, char_end=position + len(text), paragraph=len(chunks) + 1)
        chunks.append(
            NewChunk(text=text, content_hash=digest, token_count=len(text) // 4, language="en", locator=locator)
        )
        position = locator.char_end + len(_SEPARATOR)
    fields = DocumentFields(
        origin="philograph_ingest", source_uri=f"synthetic:{number}", title=f"Document {number}", language="en"
    )
    saved = await work.documents.save(fields, _SEPARATOR.join(chunk.text for chunk in chunks))
    vectors = dict(enumerate(_near(centres[random.integers(len(centres), size=PASSAGES_EACH)], random)))
    await work.chunks.replace(saved.id, chunks, vectors, space_id)


def _material(library: Opened) -> tuple[list[str], NDArray[np.float32]]:
    texts = [text for _, text in itertools.islice(collection("jowett").corpus.values(), 0, None, 10)]
    sentences = [
        sentence for text in texts for sentence in re.split(r"(?<=[.?!])\s+", text) if len(sentence) > _SHORTEST
    ]
    return sentences, library.services.embedder.embed_passages(texts)


def _near(centres: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    length = _NOISE / np.sqrt(centres.shape[1])
    moved = centres + random.normal(scale=length, size=centres.shape)
    unit: NDArray[np.float32] = (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _batched(numbers: range, size: int) -> Iterator[range]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))
