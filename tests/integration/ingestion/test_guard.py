from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from tests.support.files import make_epub, make_pdf, make_zip_bomb

from philorag.errors import ProcessingError
from philorag.ingestion.guard import ReaderPool, ReadResult

HOSTILE = Path(__file__).parents[2] / "support" / "hostile_worker.py"
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files and signals")


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[ReaderPool]:
    pool = ReaderPool(1)
    yield pool
    await pool.close()
    assert not _children()


@pytest_asyncio.fixture
async def hostile() -> AsyncIterator[ReaderPool]:
    pool = ReaderPool(1, timeout_s=3, command=(sys.executable, str(HOSTILE)))
    yield pool
    await pool.close()
    assert not _children()


def _children() -> list[psutil.Process]:
    """Reader processes of this one, zombies too."""
    return [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE or _reads(child)]


def _reads(child: psutil.Process) -> bool:
    return any("reader_worker" in part or "hostile_worker" in part for part in child.cmdline())


async def _refused(pool: ReaderPool, path: Path) -> ProcessingError:
    with pytest.raises(ProcessingError) as caught:
        await pool.read(path)
    return caught.value


async def _at_work() -> None:
    while not _children():  # noqa: ASYNC110 - nothing signals that a process runs
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)


async def _order(pool: ReaderPool, folder: Path, order: str) -> ReadResult:
    path = folder / f"{order}.txt"
    path.write_text(order)
    return await pool.read(path)


async def _refused_order(pool: ReaderPool, folder: Path, order: str) -> ProcessingError:
    with pytest.raises(ProcessingError) as caught:
        await _order(pool, folder, order)
    assert (await _order(pool, folder, "still alive")).document.blocks[0].text == "still alive"
    return caught.value


async def test_a_file_is_read_with_its_fingerprint(pool: ReaderPool, tmp_path: Path):
    """The result tells document, hash, size and time of the very bytes that were read."""
    path = tmp_path / "a.md"
    path.write_text("---\ntitle: Τίτλος\nn: [1, null, true]\n---\n# H\n\nλόγος[^1]\n\n[^1]: Note —Ed.\n")
    result = await pool.read(path)
    data = path.read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data), path.stat().st_mtime_ns) == (
        result.sha256,
        result.size,
        result.mtime_ns,
    )
    document = result.document
    assert (document.title, document.metadata) == ("Τίτλος", {"n": [1, None, True]})
    assert document.blocks[1].marks == (("1", 5),)
    assert (document.blocks[2].layer, document.blocks[2].note_author) == ("note", "editor")


async def test_one_worker_reads_many_files(pool: ReaderPool, tmp_path: Path):
    """Workers are long-lived and serve one file after another, of any format."""
    for name, data in (
        ("a.pdf", make_pdf([["text"]])),
        ("b.epub", make_epub({"a.xhtml": "<p>x</p>"})),
        ("c.txt", b"x"),
    ):
        (tmp_path / name).write_bytes(data)
        await pool.read(tmp_path / name)
    assert len(_children()) == 1


async def test_no_more_workers_than_the_size(tmp_path: Path):
    """Reads beyond the size of the pool wait."""
    pool = ReaderPool(2)
    paths = [tmp_path / f"{number}.txt" for number in range(6)]
    for path in paths:
        path.write_text(path.name)
    results = await asyncio.gather(*map(pool.read, paths))
    assert [path.name for path in paths] == [result.document.blocks[0].text for result in results]
    assert len(_children()) <= 2
    await pool.close()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("bomb.epub", make_zip_bomb(), "too_large"),
        ("cut.pdf", make_pdf([["x"]])[:300], "corrupt"),
        ("secret.pdf", make_pdf([["x"]], password="p"), "encrypted"),
        ("scan.pdf", make_pdf([[]]), "no_text"),
        ("latin.txt", b"caf\xe9", "corrupt"),
        ("surrogate.txt", b"a\xed\xa0\x80", "corrupt"),
        ("nul.txt", b"a\x00b", "unsupported_format"),
        ("empty.md", b"\n", "empty"),
    ],
)
async def test_bad_files_have_their_reason(pool: ReaderPool, tmp_path: Path, name: str, data: bytes, reason: str):
    """What the reader refuses in the worker is raised here, with reason and message."""
    (tmp_path / name).write_bytes(data)
    assert reason == (await _refused(pool, tmp_path / name)).reason


async def test_ten_megabytes_in_one_line_fit(tmp_path: Path):
    """The usual limit of memory suffices for a large plain text."""
    pool = ReaderPool(1)
    path = tmp_path / "one.txt"
    path.write_text("πάντες ἄνθρωποι τοῦ εἰδέναι ὀρέγονται φύσει. " * 115_000)
    assert len((await pool.read(path)).document.blocks) == 1
    await pool.close()


async def test_a_vanished_file_is_said_to_be_gone(pool: ReaderPool, tmp_path: Path):
    """A file may disappear between listing and reading."""
    assert (await _refused(pool, tmp_path / "gone.txt")).reason == "vanished"


async def test_a_folder_is_not_a_file(pool: ReaderPool, tmp_path: Path):
    """Folders are refused on every system."""
    assert (await _refused(pool, tmp_path)).reason == "not_a_file"


@POSIX
@pytest.mark.timeout(20)
async def test_links_pipes_and_devices_are_not_files(pool: ReaderPool, tmp_path: Path):
    """Nothing but a regular file is opened for long: a pipe would block, a link could lead anywhere."""
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to("a.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "link.txt", tmp_path / "pipe.txt", Path("/dev/null")):
        assert (await _refused(pool, path)).reason == "not_a_file"


@POSIX
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may read everything")
async def test_a_file_without_permission_is_unreadable(pool: ReaderPool, tmp_path: Path):
    """The operating system's refusal is passed on."""
    path = tmp_path / "a.txt"
    path.write_text("x")
    path.chmod(0)
    assert (await _refused(pool, path)).reason == "unreadable"


async def test_a_file_beyond_the_size_cap_is_not_read(tmp_path: Path):
    """The cap is checked before anything is read."""
    pool = ReaderPool(1, max_bytes=10)
    (tmp_path / "a.txt").write_text("x" * 11)
    error = await _refused(pool, tmp_path / "a.txt")
    assert (error.reason, error.details["max_bytes"]) == ("too_large", 10)
    await pool.close()


@POSIX
async def test_names_may_hold_any_byte(pool: ReaderPool, tmp_path: Path):
    """A name that isn't UTF-8 is read like any other."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt"))
    path.write_text("x")
    assert (await pool.read(path)).document.blocks[0].text == "x"


@pytest.mark.parametrize("order", ["sleep", "spin"])
async def test_a_reader_that_takes_too_long_is_stopped(hostile: ReaderPool, tmp_path: Path, order: str):
    """The limit is wall-clock time, and holds in C code that never returns too."""
    error = await _refused_order(hostile, tmp_path, order)
    assert (error.reason, error.details["seconds"]) == ("timeout", 3)


@POSIX
@pytest.mark.parametrize("order", ["segfault", "killed"])
async def test_a_crash_costs_one_file(hostile: ReaderPool, tmp_path: Path, order: str):
    """The next file gets a new worker."""
    assert (await _refused_order(hostile, tmp_path, order)).reason == "corrupt"


@pytest.mark.parametrize("order", ["memory", "slow memory"])
async def test_too_much_memory_is_said_so(hostile: ReaderPool, tmp_path: Path, order: str):
    """One huge request and slow growth both end at the limit."""
    assert (await _refused_order(hostile, tmp_path, order)).reason == "out_of_memory"


async def test_the_parent_watches_memory_where_limits_are_missing(
    hostile: ReaderPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without resource limits, the resident size is enough to stop a worker."""
    script = f"import sys, runpy; sys.platform = 'other'; runpy.run_path({str(HOSTILE)!r}, run_name='__main__')"
    monkeypatch.setattr(hostile, "_command", (sys.executable, "-c", script))
    assert (await _refused_order(hostile, tmp_path, "slow memory")).reason == "out_of_memory"


async def test_what_a_reader_prints_stays_out_of_the_protocol(
    hostile: ReaderPool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """Noise on the worker's stdout reaches neither the frames nor the parent's stdout."""
    assert (await _order(hostile, tmp_path, "print")).document.blocks[0].text == "print"
    assert capfd.readouterr() == ("", "")


async def test_a_bug_in_a_reader_costs_one_file(hostile: ReaderPool, tmp_path: Path):
    """An unforeseen exception is an error of that file, without its text."""
    error = await _refused_order(hostile, tmp_path, "bug")
    assert error.reason == "corrupt"
    assert "a bug" not in error.message


@pytest.mark.parametrize("order", ["bad offset", "bad kind", pytest.param("huge frame", marks=POSIX)])
async def test_answers_are_checked(hostile: ReaderPool, tmp_path: Path, order: str):
    """A worker that answers nonsense is ended like one that crashed."""
    assert (await _refused_order(hostile, tmp_path, order)).reason == "corrupt"


async def test_a_worker_gets_no_secrets(hostile: ReaderPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Credentials in the environment of the parent are none of the reader's business."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("DATABASE_URL", "u")
    names = (await _order(hostile, tmp_path, "environment")).document.blocks[0].text.split()
    assert not {"OPENAI_API_KEY", "DATABASE_URL"} & set(names)


async def test_a_worker_imports_no_more_than_it_needs(hostile: ReaderPool, tmp_path: Path):
    """The start is quick because servers, databases and models stay out, and readers until they are used."""
    modules = set((await _order(hostile, tmp_path, "modules")).document.blocks[0].text.split())
    assert not modules & {
        "fastmcp",
        "sqlalchemy",
        "onnxruntime",
        "pydantic",
        "pypdfium2",
        "lxml",
        "markdown_it",
        "numpy",
    }


async def test_cancelling_ends_the_reading(hostile: ReaderPool, tmp_path: Path):
    """A caller that gives up leaves no process at work."""
    task = asyncio.create_task(_order(hostile, tmp_path, "sleep"))
    await _at_work()
    task.cancel()
    started = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.perf_counter() - started < 2
    assert not _children()
    assert (await _order(hostile, tmp_path, "next")).document.blocks[0].text == "next"


async def test_closing_ends_reads_that_run(tmp_path: Path):
    """`close` doesn't wait for a slow file, and nothing can be read after it."""
    pool = ReaderPool(1, timeout_s=30, command=(sys.executable, str(HOSTILE)))
    task = asyncio.create_task(_order(pool, tmp_path, "sleep"))
    await _at_work()
    await pool.close()
    with pytest.raises((ProcessingError, RuntimeError)):
        await task
    assert not _children()
    with pytest.raises(RuntimeError, match="closed"):
        await pool.read(tmp_path / "sleep.txt")


async def test_a_worker_that_cannot_start_is_a_bug_not_a_bad_file(tmp_path: Path):
    """A broken installation is told with what the process said."""
    pool = ReaderPool(1, command=(sys.executable, "-c", "raise SystemExit('no such thing')"))
    with pytest.raises(RuntimeError, match="no such thing"):
        await pool.read(tmp_path)
    await pool.close()


@POSIX
@pytest.mark.timeout(30)
def test_workers_die_with_their_parent(tmp_path: Path):
    """When the parent is killed, its workers see the end of their input and leave."""
    (tmp_path / "a.txt").write_text("x")
    script = (
        "import asyncio, os, pathlib, psutil\nfrom philorag.ingestion.guard import ReaderPool\n"
        f"async def main():\n    await ReaderPool(1).read(pathlib.Path({str(tmp_path / 'a.txt')!r}))\n"
        "    print(psutil.Process().children()[0].pid, flush=True)\n    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    parent = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    worker = int(parent.stdout)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(worker) and psutil.Process(worker).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
