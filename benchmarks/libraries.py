"""What the benchmarks search: libraries that are made once and kept in the user's cache."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from benchmarks.remembering import Remembering
from philorag.embedding.local import LocalEmbedder
from philorag.model import Block, DocumentFields, ReadDocument
from philorag.services import Services
from philorag.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from philorag.model import Caller

__all__ = ["CACHE", "EXAMPLES", "Collection", "Opened", "collection", "data_folder", "opened"]

CACHE = Path(platformdirs.user_cache_dir("philorag-benchmarks", appauthor=False))
EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "library"
# As many as the queue puts into one batch.
_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Collection:
    """A retrieval test: *corpus* and *queries* by id, and the grade of each relevant passage of a query."""

    name: str
    corpus: Mapping[str, tuple[str, str]]
    queries: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Opened:
    services: Services
    caller: Caller

    async def add(self, collection: Collection) -> None:
        """Make each entry of *collection* that isn't there yet a document."""
        missing = await self._missing(collection)
        turns = asyncio.Semaphore(_TOGETHER)

        async def add(entry: str) -> None:
            title, text = collection.corpus[entry]
            document = ReadDocument("text/plain", (Block(text),), title=title or None, language="en")
            fields = DocumentFields(origin="philograph_ingest", source_uri=_uri(collection.name, entry))
            async with turns:
                await self.services.pipeline.store(self.caller, fields, document)

        await asyncio.gather(*map(add, missing))

    async def _missing(self, collection: Collection) -> Sequence[str]:
        async with self.services.database.unit_of_work(self.caller) as work:
            known = [await work.documents.id_of(_uri(collection.name, entry)) for entry in collection.corpus]
        return [entry for entry, document_id in zip(collection.corpus, known, strict=True) if document_id is None]


def data_folder() -> Path:
    """The folder of real texts that `PHILORAG_TEST_DATA` names."""
    folder = os.environ.get("PHILORAG_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        sys.exit("PHILORAG_TEST_DATA must name the folder with books/, epub/, jowett/ and plato_grc_en/.")
    return Path(folder)


def collection(name: str, sample: int | None = None) -> Collection:
    """The collection *name* of the data folder; a sample keeps that many queries and a corpus in proportion."""
    folder = data_folder() / name
    corpus = {row["id"]: (row["title"], row["text"]) for row in _lines(folder / "corpus.jsonl")}
    queries = {row["id"]: row["text"] for row in _lines(folder / "queries.jsonl")}
    grades: dict[str, dict[str, int]] = {}
    with (folder / "qrels.tsv").open(encoding="utf-8", newline="") as rows:
        for query, passage, grade in csv.reader(rows, delimiter="\t"):
            grades.setdefault(query, {})[passage] = int(grade)
    queries = {query: text for query, text in queries.items() if query in grades}
    return _sampled(Collection(name, corpus, queries, grades), sample)


@asynccontextmanager
async def opened(library: str, data_dir: Path = CACHE / "store", **settings: object) -> AsyncIterator[Opened]:
    """The library called *library* in the benchmarks' own store, with a model that remembers passages."""
    chosen = Settings.model_validate({"data_dir": data_dir, "library": library, **settings})
    embedder = Remembering(LocalEmbedder(threads=chosen.embedding_threads), CACHE / "vectors.sqlite")
    async with await Services.open(chosen, embedder) as services:
        yield Opened(services, await services.local_caller())


def _sampled(whole: Collection, sample: int | None) -> Collection:
    if sample is None or sample >= len(whole.queries):
        return whole
    step = len(whole.queries) / sample
    names = list(whole.queries)
    chosen = [names[int(number * step)] for number in range(sample)]
    relevant = {passage for query in chosen for passage in whole.grades[query]}
    kept = {
        entry: text
        for number, (entry, text) in enumerate(whole.corpus.items())
        if entry in relevant or int(number / step) != int((number - 1) / step)
    }
    queries = {query: whole.queries[query] for query in chosen}
    return Collection(f"{whole.name}-{sample}", kept, queries, whole.grades)


def _uri(name: str, entry: str) -> str:
    return f"{name}:{entry}"


def _lines(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
