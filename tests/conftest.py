"""Fixtures that every part uses: a real embedded PostgreSQL and the real local model, once for the whole run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from philorag.embedding.local import LocalEmbedder
from philorag.model import Caller
from philorag.services import Services
from philorag.settings import Settings, variable_names
from philorag.testing import temporary_database, temporary_settings

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "library"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's own reaches a test."""
    for variables in variable_names().values():
        for variable in variables:
            monkeypatch.delenv(variable, raising=False)
    for variable in [name for name in os.environ if name.startswith("PHILORAG_") and name != "PHILORAG_TEST_DATA"]:
        monkeypatch.delenv(variable)


@pytest.fixture(scope="session")
def data_dir() -> Iterator[Path]:
    with temporary_database() as folder:
        yield folder


@pytest.fixture(scope="session")
def embedder() -> LocalEmbedder:
    return LocalEmbedder(threads=2)


@pytest.fixture
def settings(data_dir: Path, tmp_path: Path) -> Settings:
    """A library of the test's own, whose source folder is `tmp_path / "sources"`."""
    (tmp_path / "sources").mkdir()
    return temporary_settings(data_dir, source_dir=tmp_path / "sources")


@pytest.fixture
async def services(settings: Settings, embedder: LocalEmbedder) -> AsyncIterator[Services]:
    async with await Services.open(settings, embedder) as opened:
        yield opened


@pytest.fixture
async def caller(services: Services) -> Caller:
    return await services.local_caller()


@pytest.fixture(scope="session")
def example_library() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real books that `PHILORAG_TEST_DATA` names; tests that need it are skipped without."""
    folder = os.environ.get("PHILORAG_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("PHILORAG_TEST_DATA names no folder with real books")
    return Path(folder)
