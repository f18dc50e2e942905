"""Run with `pytest` in a virtual environment where the plugin is installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from philorag.testing import ToolCallFailed, call, connected, temporary_database, temporary_settings

TEXT = "Virtue is knowledge, said Socrates. If virtue is knowledge, it can be taught."


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    with temporary_database() as folder:
        yield folder


async def test_every_occurrence_is_listed_with_its_surroundings(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHILORAG_PLUGIN_CONCORDANCE_WIDTH", "13")
    async with connected(temporary_settings(data_dir)) as client:
        stored = await call(client, "put_document", text=TEXT, filepath="meno", file_type="txt")
        document_id = int(stored["details"]["document_id"])
        answer = await call(client, "concordance", document_id=document_id, word="virtue")
    assert [(line["before"], line["word"], line["after"]) for line in answer["lines"]] == [
        ("", "Virtue", " is knowledge"),
        ("Socrates. If ", "virtue", " is knowledge"),
    ]


async def test_what_is_no_word_is_refused_with_an_example(data_dir: Path) -> None:
    async with connected(temporary_settings(data_dir)) as client:
        with pytest.raises(ToolCallFailed) as failure:
            await call(client, "concordance", document_id=1, word="(.*)+")
    assert failure.value.error["code"] == "INVALID_INPUT"
    assert failure.value.error["details"] == {"argument": "word"}
