from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from philorag.embedding.local import LocalEmbedder
from philorag.errors import DatabaseUnavailable, EmbeddingFailed, InvalidInput, PermissionDenied, ProcessingError
from philorag.ingestion.guard import ReaderPool, ReadResult
from philorag.ingestion.run import IngestProgress
from philorag.ingestion.service import IngestService
from philorag.model import Caller, Chunk, Document, DocumentFields, IngestCounts, Job, SearchFilters
from philorag.services import Services
from philorag.settings import Settings
from philorag.storage.repositories.documents import DocumentListing

PARAGRAPHS = [
    "Virtue is a state of character concerned with choice, lying in a mean relative to us.",
    "Time is the number of motion in respect of the before and after, and it is continuous.",
    "The cave is an image of our nature in its education and its want of education.",
]


class CountingEmbedder:
    """The real model, with a note of every passage that it embedded."""

    def __init__(self, model: LocalEmbedder) -> None:
        self._model = model
        self.space, self.max_tokens = model.space, model.max_tokens
        self.count_tokens, self.embed_query, self.close = model.count_tokens, model.embed_query, model.close
        self.passages: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> Any:
        self.passages.extend(texts)
        return self._model.embed_passages(texts)


@dataclass
class RecordingReaders:
    """The real reader pool, with a note of every file that it read and a hook before each."""

    pool: ReaderPool
    names: list[str] = field(default_factory=list)
    before: Callable[[Path], Awaitable[None]] | None = None

    async def read(self, path: Path) -> ReadResult:
        self.names.append(path.name)
        if self.before is not None:
            await self.before(path)
        return await self.pool.read(path)


@dataclass
class World:
    services: Services
    caller: Caller
    embedder: CountingEmbedder
    readers: RecordingReaders
    service: IngestService
    folder: Path

    def write(self, name: str, *paragraphs: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(f"# Section {n}\n\n{text}" for n, text in enumerate(paragraphs)), encoding="utf-8")
        return path

    async def ingest(self, path: str = ".", **options: Any) -> IngestCounts:
        return (await self.service.ingest(self.caller, path, **options)).counts

    def forget(self) -> None:
        self.embedder.passages.clear()
        self.readers.names.clear()

    async def documents(self) -> dict[str, Document]:
        found, _ = await self.services.documents.listing(self.caller, DocumentListing(limit=200))
        return {document.path or document.source_uri: document for document in found}

    async def chunks(self, path: str) -> list[Chunk]:
        async with self.services.database.unit_of_work(self.caller) as work:
            document = await work.documents.by_path(path)
            return await work.chunks.of_document(document.id) if document else []


async def world_of(settings: Settings, model: LocalEmbedder, services: Services) -> World:
    caller = await services.local_caller()
    counting = CountingEmbedder(model)
    pipeline = type(services.pipeline)(services.database, counting, services.pipeline._limits)
    readers = RecordingReaders(services.readers)
    service = IngestService(services.database, pipeline, readers, settings.source_folder)  # type: ignore[arg-type]
    return World(services, caller, counting, readers, service, settings.source_folder)


@pytest.fixture
async def world(settings: Settings, embedder: LocalEmbedder, services: Services) -> AsyncIterator[World]:
    world = await world_of(settings, embedder, services)
    yield world
    await world.service._pipeline.close()


def summary(counts: IngestCounts) -> tuple[int, int, int, int]:
    return counts.added, counts.updated, counts.unchanged, len(counts.failed)


async def job_of(world: World, report_of: Awaitable[Any]) -> Job:
    report = await report_of
    async with world.services.database.unit_of_work(world.caller) as work:
        job = await work.jobs.get(report.job_id)
    assert job is not None
    return job


async def test_an_unchanged_file_is_not_opened(world: World):
    """A second ingest reads nothing and embeds nothing."""
    world.write("a.md", *PARAGRAPHS)
    assert summary(await world.ingest()) == (1, 0, 0, 0)
    world.forget()
    assert summary(await world.ingest()) == (0, 0, 1, 0)
    assert not world.readers.names
    assert not world.embedder.passages


async def test_new_times_alone_change_nothing(world: World):
    """A file with new times and old contents is unchanged, and is known by its times from then on."""
    path = world.write("a.md", *PARAGRAPHS)
    await world.ingest()
    world.forget()
    os.utime(path, ns=(1, 1))
    assert summary(await world.ingest()) == (0, 0, 1, 0)
    async with world.services.database.unit_of_work(world.caller) as work:
        known = (await work.documents.known_sources(["documents/a.md"]))["documents/a.md"]
    assert known.source is not None
    assert known.source.mtime_ns == 1
    assert not world.readers.names


async def test_a_changed_paragraph_alone_is_embedded(world: World):
    """Re-ingest keeps the document's id and every unchanged passage's, and embeds only what is new."""
    world.write("a.md", *PARAGRAPHS)
    await world.ingest()
    before, (document,) = await world.chunks("documents/a.md"), (await world.documents()).values()
    world.forget()
    world.write(
        "a.md", PARAGRAPHS[0], "Time is a stretching of the mind itself, which expects and remembers.", PARAGRAPHS[2]
    )
    assert summary(await world.ingest()) == (0, 1, 0, 0)
    after = await world.chunks("documents/a.md")
    assert [before[0].id, before[2].id] == [after[0].id, after[2].id]
    assert before[1].id != after[1].id
    assert [after[1].text] == world.embedder.passages
    assert (await world.documents())["documents/a.md"].id == document.id


async def test_a_moved_paragraph_is_not_embedded_again(world: World):
    """Passages that only change places keep their ids; offsets follow."""
    world.write("a.md", *PARAGRAPHS)
    await world.ingest()
    world.forget()
    before = {chunk.id for chunk in await world.chunks("documents/a.md")}
    path = world.folder / "a.md"
    path.write_text("Short preface.\n\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    await world.ingest()
    after = await world.chunks("documents/a.md")
    page = await world.services.documents.page(
        world.caller, document_id=None, path="documents/a.md", offset=0, max_chars=100_000
    )
    assert before < {chunk.id for chunk in after}
    assert world.embedder.passages == ["Short preface."]
    assert all(page.content[c.locator.char_start : c.locator.char_end] == c.text for c in after)


async def test_force_reads_again_and_embeds_nothing_known(world: World):
    """Asked to, it reads unchanged files; their passages keep their vectors."""
    world.write("a.md", *PARAGRAPHS)
    await world.ingest()
    world.forget()
    assert summary(await world.ingest(force=True)) == (0, 1, 0, 0)
    assert world.readers.names == ["a.md"]
    assert not world.embedder.passages


async def test_a_new_pipeline_reads_again(world: World, monkeypatch: pytest.MonkeyPatch):
    """What another version of the pipeline made is made anew."""
    world.write("a.md", *PARAGRAPHS)
    await world.ingest()
    monkeypatch.setattr("philorag.ingestion.pipeline.PIPELINE", "next")
    assert summary(await world.ingest()) == (0, 1, 0, 0)
    assert summary(await world.ingest()) == (0, 0, 1, 0)


async def test_a_bad_file_stops_no_other(world: World):
    """A file that can't be read is a row with its path, code and reason, in the answer and in the job."""
    world.write("a.md", PARAGRAPHS[0])
    (world.folder / "bad.pdf").write_bytes(b"%PDF-1.7 nothing follows")
    (world.folder / "empty.md").write_bytes(b"")
    world.write("z.md", PARAGRAPHS[1])
    job = await job_of(world, world.service.ingest(world.caller, "."))
    rows = sorted((failure.path, failure.code, failure.reason) for failure in job.failures)
    assert job.state == "completed"
    assert job.result is not None
    assert job.result["added"] == 2
    assert rows == [
        ("documents/bad.pdf", "PROCESSING_ERROR", "corrupt"),
        ("documents/empty.md", "PROCESSING_ERROR", "empty"),
    ]


async def test_a_bug_stops_no_other(world: World, caplog: pytest.LogCaptureFixture):
    """A file that meets a bug is a row with an incident that is in the log, without its text."""

    async def stumble(path: Path) -> None:
        if path.name == "b.md":
            raise ZeroDivisionError("secret")

    for name in ("a.md", "b.md", "c.md"):
        world.write(name, PARAGRAPHS[0])
    world.readers.before = stumble
    counts = await world.ingest()
    assert summary(counts) == (2, 0, 0, 1)
    (failure,) = counts.failed
    assert (failure.path, failure.code) == ("documents/b.md", "INTERNAL_ERROR")
    assert "secret" not in failure.reason
    assert failure.reason.split("incident ")[1][:8] in caplog.text


@pytest.mark.parametrize(("name", "content", "reason"), [("a.pdf", b"%PDF-1.7", "corrupt"), ("a.md", b"", "empty")])
async def test_a_named_bad_file_is_an_error(world: World, name: str, content: bytes, reason: str):
    """Who names one file is told what is wrong with it, and the job failed."""
    (world.folder / name).write_bytes(content)
    with pytest.raises(ProcessingError) as caught:
        await world.ingest(name)
    assert caught.value.reason == reason


async def test_a_file_that_vanishes_is_a_failure(world: World):
    """A file that is removed after it was listed is a row that says so."""

    async def remove(path: Path) -> None:
        path.unlink()

    world.write("a.md", PARAGRAPHS[0])
    world.readers.before = remove
    counts = await world.ingest()
    assert [(failure.path, failure.reason) for failure in counts.failed] == [("documents/a.md", "vanished")]


async def test_what_is_cancelled_leaves_whole_documents(world: World):
    """A cancelled ingest leaves finished documents as they are and nothing of the others, and its job says so."""
    reached, stored_one = asyncio.Event(), asyncio.Event()

    async def stop_at_c(path: Path) -> None:
        if path.name == "c.md":
            reached.set()
            await asyncio.Event().wait()

    async def progress(state: IngestProgress) -> None:
        if state.counts.added:
            stored_one.set()

    for name in ("a.md", "b.md", "c.md", "d.md"):
        world.write(name, *PARAGRAPHS)
    world.readers.before = stop_at_c
    task = asyncio.create_task(world.service.ingest(world.caller, ".", progress=progress))
    await reached.wait()
    await stored_one.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stored = await world.documents()
    assert stored
    assert "documents/c.md" not in stored
    for path in stored:
        assert len(await world.chunks(path)) == 3
    assert await job_states(world) == ["cancelled"]
    world.readers.before = None
    counts = await world.ingest()
    assert (counts.added, counts.unchanged) == (4 - len(stored), len(stored))


async def job_states(world: World) -> list[str]:
    """The states of the library's jobs; ids are shared with other libraries, whose rows can't be seen."""
    from sqlalchemy import select, text

    from philorag.storage.tables import jobs

    async with world.services.database.unit_of_work(world.caller) as work:
        rows = await work.jobs._connection.execute(select(jobs.c.state).order_by(text("id")))
        return list(rows.scalars())


async def test_two_ingests_at_once_agree(world: World):
    """Two ingests of one folder make each document once, with passages that are whole."""
    for n in range(5):
        world.write(f"{n}.md", *PARAGRAPHS)
    first, second = await asyncio.gather(world.ingest(), world.ingest())
    assert first.added + second.added == 5
    assert not first.failed
    assert not second.failed
    assert len(await world.documents()) == 5
    assert len(await world.chunks("documents/3.md")) == 3


async def test_a_lost_database_ends_the_run(world: World, monkeypatch: pytest.MonkeyPatch):
    """When the store goes in the middle, the run ends with that, not with a row for each file that is left."""

    def gone(_caller: Caller) -> None:
        raise DatabaseUnavailable("gone", reason="unreachable")

    async def lose(_path: Path) -> None:
        monkeypatch.setattr(world.services.database, "unit_of_work", gone)

    for n in range(6):
        world.write(f"{n}.md", PARAGRAPHS[0])
    world.readers.before = lose
    with pytest.raises(DatabaseUnavailable):
        await world.ingest()
    monkeypatch.undo()
    world.readers.before = None
    assert (await world.ingest()).added == 6


async def test_a_library_of_another_model_is_not_mixed(world: World):
    """A library whose vectors another model made takes no ingest, and is searched by words with a warning."""
    world.write("a.md", *PARAGRAPHS)
    await world.ingest()
    world.embedder.space = replace(world.embedder.space, revision="another")
    with pytest.raises(EmbeddingFailed):
        await world.ingest(force=True)
    search = type(world.services.search)(world.services.database, world.embedder)
    answer = await search.passages(world.caller, "number of motion", SearchFilters(), 5)
    assert answer.hits[0].passage.text.endswith(PARAGRAPHS[1])
    assert {("lexical",)} == {hit.matched_by for hit in answer.hits}
    assert "Only words" in answer.warnings[0]
    with pytest.raises(EmbeddingFailed):
        await search.documents(world.caller, "motion", SearchFilters(), limit=5, threshold=0)


async def test_progress_ends_at_the_total(world: World):
    """Progress never falls, and ends when every file is done, bad and unchanged ones too."""
    seen: list[tuple[float, int]] = []

    async def progress(state: IngestProgress) -> None:
        seen.append((state.done, state.total))

    world.write("a.md", PARAGRAPHS[0])
    await world.ingest()
    world.write("b.md", PARAGRAPHS[1])
    (world.folder / "bad.pdf").write_bytes(b"%PDF-1.7")
    await world.ingest(progress=progress)
    assert seen == sorted(seen)
    assert seen[-1] == (3, 3)


async def test_progress_moves_within_a_long_document(world: World):
    """A document of many passages is reported by the share of them that is embedded."""
    seen: list[float] = []

    async def progress(state: IngestProgress) -> None:
        seen.append(state.done)

    world.write("long.md", *[f"{number}. {paragraph}" for number in range(120) for paragraph in PARAGRAPHS])
    await world.ingest(progress=progress)
    assert any(0 < done < 1 for done in seen)


@pytest.mark.parametrize(("path", "failure"), [("..", PermissionDenied), ("nowhere.md", InvalidInput)])
async def test_a_wrong_path_starts_no_job(world: World, path: str, failure: type[Exception]):
    """A path that can't be used is refused before anything is recorded."""
    with pytest.raises(failure):
        await world.ingest(path)
    assert await job_states(world) == []


async def test_a_folder_elsewhere_becomes_a_root(world: World, tmp_path: Path):
    """A folder outside is known by its name, a clash gets a number, and both keep their names afterwards."""
    for parent in ("x", "y"):
        (tmp_path / parent / "plato").mkdir(parents=True)
        (tmp_path / parent / "plato" / "meno.md").write_text(f"In {parent}: {PARAGRAPHS[2]}", encoding="utf-8")
        await world.service.ingest_folder(world.caller, tmp_path / parent / "plato")
    again = await world.service.ingest_folder(world.caller, tmp_path / "y" / "plato" / "meno.md")
    assert again.counts.unchanged == 1
    assert {"documents/plato/meno.md", "documents/plato-2/meno.md"} == set(await world.documents())


async def test_a_root_does_not_hide_behind_a_folder(world: World, tmp_path: Path):
    """A root is never called as a folder of the source folder is: each file stays a document of its own."""
    world.write("plato/meno.md", PARAGRAPHS[0])
    await world.ingest()
    (tmp_path / "plato").mkdir()
    (tmp_path / "plato" / "meno.md").write_text(PARAGRAPHS[2], encoding="utf-8")
    report = await world.service.ingest_folder(world.caller, tmp_path / "plato")
    assert report.counts.added == 1
    assert {"documents/plato/meno.md", "documents/plato-2/meno.md"} == set(await world.documents())


async def test_a_file_has_one_path_whichever_way_it_comes(world: World, tmp_path: Path):
    """A folder that was ingested as a root keeps its paths when it, or one above, becomes the source folder."""
    books = tmp_path / "books"
    (books / "plato").mkdir(parents=True)
    (books / "plato" / "meno.md").write_text(PARAGRAPHS[0], encoding="utf-8")
    await world.service.ingest_folder(world.caller, books)
    below = await world.service.ingest_folder(world.caller, books / "plato")
    world.service._source_folder = books / "plato"
    again = await world.service.ingest(world.caller, "meno.md")
    assert (below.counts.unchanged, again.counts.unchanged) == (1, 1)
    assert list(await world.documents()) == ["documents/books/plato/meno.md"]


async def test_a_root_inside_the_source_folder_is_no_root(world: World):
    """The operator's path into the source folder means the same documents as a caller's."""
    path = world.write("plato/meno.md", PARAGRAPHS[0])
    await world.ingest()
    assert (await world.service.ingest_folder(world.caller, path.parent)).counts.unchanged == 1


async def test_a_root_that_is_not_there_is_not_registered(world: World, tmp_path: Path):
    """A mistyped path leaves no name behind."""
    with pytest.raises(InvalidInput):
        await world.service.ingest_folder(world.caller, tmp_path / "plto")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / tmp_path.name).mkdir()
    (tmp_path / "b" / tmp_path.name / "a.md").write_text(PARAGRAPHS[0], encoding="utf-8")
    await world.service.ingest_folder(world.caller, tmp_path / "b" / tmp_path.name)
    assert [f"documents/{tmp_path.name}/a.md"] == list(await world.documents())


FIELDS = DocumentFields(origin="process_text_file", source_uri="urn:meno", title="Meno", metadata={"shelf": 3})


async def test_one_file_is_ingested_under_given_fields(world: World):
    """What the caller says of a file wins over what the file says."""
    (world.folder / "m.md").write_text(f"---\ntitle: Other\nlang: en\n---\n{PARAGRAPHS[0]}", encoding="utf-8")
    stored = await world.service.ingest_file(world.caller, "m.md", FIELDS)
    assert stored is not None
    document = await world.services.documents.get(world.caller, document_id=stored.document_id)
    assert (document.title, document.source_uri, document.path) == ("Meno", "urn:meno", None)
    assert document.metadata["shelf"] == 3


async def test_an_empty_file_is_no_document(world: World):
    """A file without text gives None, and other failures are errors."""
    (world.folder / "e.txt").write_bytes(b"")
    assert await world.service.ingest_file(world.caller, "e.txt", FIELDS) is None
    (world.folder / "bad.pdf").write_bytes(b"%PDF-1.7")
    with pytest.raises(ProcessingError):
        await world.service.ingest_file(world.caller, "bad.pdf", FIELDS)


async def test_a_text_is_read_as_its_suffix_says(world: World):
    """Markdown that was put has sections, and putting it again replaces it."""
    fields = DocumentFields(origin="put_document", source_uri="put:n.md", path="put/n.md")
    text = f"# One\n\n{PARAGRAPHS[0]}\n\n# Two\n\n{PARAGRAPHS[1]}"
    first = await world.service.ingest_text(world.caller, text, ".md", fields)
    again = await world.service.ingest_text(world.caller, text, ".md", fields, unit_length=True)
    assert (first.created, first.chunk_count, first.chunks_added) == (True, 2, 2)
    assert (again.document_id, again.created, again.chunks_added) == (first.document_id, False, 0)
    assert [chunk.locator.section_path for chunk in await world.chunks("put/n.md")] == [("One",), ("Two",)]


async def test_only_the_tool_that_made_a_document_replaces_it(world: World):
    """Another tool's document is refused, and stays as it was."""
    fields = replace(FIELDS, origin="put_document")
    await world.service.ingest_text(world.caller, PARAGRAPHS[0], ".txt", fields)
    (world.folder / "m.md").write_text(PARAGRAPHS[1], encoding="utf-8")
    with pytest.raises(PermissionDenied):
        await world.service.ingest_file(world.caller, "m.md", FIELDS)
    assert (await world.documents())["urn:meno"].origin == "put_document"
