"""`philorag` as its user calls it: real processes, a real library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from philorag.settings import Settings

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = Path(sys.executable).parent / "philorag"


@pytest.fixture
def environment(settings: Settings) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "COLUMNS": "200",
        "PHILORAG_DATA_DIR": str(settings.data_dir),
        "PHILORAG_LIBRARY": settings.library,
        "PHILORAG_SOURCE_DIR": str(settings.source_folder),
    }


@pytest.fixture
def philorag(environment: dict[str, str]) -> Run:
    def run(*arguments: str | Path, **changed: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *arguments], env=environment | changed, capture_output=True, text=True, timeout=100, check=False
        )

    return run


@pytest.fixture
def books(tmp_path: Path, example_library: Path) -> Path:
    folder = tmp_path / "books"
    folder.mkdir()
    shutil.copy(example_library / "stoic-assent.txt", folder)
    return folder


def test_a_folder_is_ingested_searched_and_emptied(philorag: Run, books: Path):
    """What `ingest` read, `search` finds with its citation, and `remove` takes out again."""
    ingested = philorag("ingest", books)
    assert "1 added, 0 updated, 0 unchanged, 0 failed" in ingested.stdout
    found = philorag("search", "With what gesture did Zeno explain assent?", "--limit", "1")
    assert "Impression and Assent: A Stoic Distinction and Its Critics, 1. Zeno's hand, ¶ 1" in found.stdout
    assert "documents/books/stoic-assent.txt" in found.stdout
    assert philorag("remove", "documents/books/stoic-assent.txt").stdout.startswith("Removed Impression and Assent")
    assert "Nothing found" in philorag("search", "Zeno").stdout


def test_files_that_fail_are_listed_with_advice(philorag: Run, books: Path):
    """A file that can't be read is named with what to do about it, and the others come in."""
    (books / "scan.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    ingested = philorag("ingest", books)
    assert ingested.returncode == 0
    assert "1 added" in ingested.stdout
    assert "documents/books/scan.png" in ingested.stdout
    assert "not a format that philorag reads" in ingested.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("ingest", "/no/such/folder"), "philorag: /no/such/folder does not exist."),
        (("remove", "4711000"), "philorag: There is no such document in this library."),
        (("remove", "9" * 20), "philorag: There is no such document in this library."),
        (("search", "virtue", "--library", "bad name!"), "philorag: PHILORAG_LIBRARY: "),
    ],
)
def test_a_failure_is_one_sentence(philorag: Run, arguments: tuple[str, ...], sentence: str):
    """A failure is a sentence on standard error and exit code 1, never a traceback."""
    failed = philorag(*arguments)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith(sentence)
    assert "Traceback" not in failed.stderr


def test_a_configuration_that_works_passes_the_doctor(philorag: Run):
    """`doctor` ends with 0 when store, model and plugins work."""
    report = philorag("doctor")
    assert report.returncode == 0, report.stdout + report.stderr
    assert "embedded PostgreSQL" in report.stdout
    assert "serving as philorag_app" in report.stdout
    assert "multilingual-e5-small" in report.stdout


def test_the_doctor_says_what_to_do_about_a_database_that_is_not_there(philorag: Run):
    """`doctor` ends with 1 when the database can't be reached, and shows no password."""
    report = philorag("doctor", DATABASE_URL="postgresql://me:hush-hush@127.0.0.1:9/x")
    assert report.returncode == 1
    assert "can't be reached" in report.stdout
    assert "hush-hush" not in report.stdout + report.stderr


def test_the_printed_configuration_starts_this_gateway_on_this_library(philorag: Run, environment: dict[str, str]):
    """`client-config` prints two JSON objects that name the command and the settings that are set, but no secret."""
    printed = philorag("client-config", PGPASSWORD="hush-hush").stdout
    decoder = json.JSONDecoder()
    starts = [index for index, line in enumerate(printed.splitlines()) if line == "{"]
    claude, code = (decoder.raw_decode("\n".join(printed.splitlines()[start:]))[0] for start in starts)
    entry = claude["mcpServers"]["philorag"]
    assert Path(entry["command"]) == COMMAND.with_name("philorag-mcp")
    assert entry["env"]["PHILORAG_LIBRARY"] == environment["PHILORAG_LIBRARY"]
    assert code["servers"]["philorag"] == {"type": "stdio", **entry}
    assert "hush-hush" not in printed


def test_the_installed_plugins_are_listed_with_their_tools(philorag: Run):
    """`plugins` shows every toolset with its distribution and tools."""
    listed = philorag("plugins").stdout
    assert "philograph_search, search_documents" in listed
    assert listed.count("philorag") >= 5


def test_the_schema_can_be_upgraded_by_hand(philorag: Run):
    """`db upgrade` says at which revision the database is afterwards."""
    assert philorag("db", "upgrade").stdout == "The embedded database is at schema 0001.\n"
