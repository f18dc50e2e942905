from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from philorag.embedding.openai import Endpoint, OpenAIEmbedder
from philorag.embedding.protocol import Embedder
from philorag.embedding.providers import open_endpoint
from philorag.errors import ConfigurationError
from philorag.ingestion.chunking import ChunkLimits
from philorag.services import chunk_limits
from philorag.settings import Settings, load_settings

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def no_file(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("PHILORAG_DATA_DIR", str(tmp_path_factory.mktemp("data")))


@pytest.mark.parametrize(
    ("variables", "endpoint"),
    [
        ({}, False),
        ({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, False),
        ({"PHILORAG_EMBEDDING_API_KEY": KEY}, True),
        ({"EMBEDDING_API_KEY": KEY}, True),
        ({"PHILORAG_EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1"}, True),
        ({"PHILORAG_EMBEDDING_API_KEY": KEY, "PHILORAG_EMBEDDING_PROVIDER": "local"}, False),
        ({"EMBEDDING_MODEL_NAME": "bge-m3"}, False),
    ],
)
def test_only_settings_of_philorag_choose_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], endpoint: bool
):
    """A key or an address for embeddings chooses an endpoint; a key of OpenAI's in the shell sends nothing out."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert load_settings().uses_embedding_endpoint is endpoint


def test_openai_needs_a_key(monkeypatch: pytest.MonkeyPatch):
    """The endpoint without key and address stops the start and says what is missing."""
    monkeypatch.setenv("PHILORAG_EMBEDDING_PROVIDER", "openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(ConfigurationError, match="PHILORAG_EMBEDDING_API_KEY is missing"):
        load_settings()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PHILORAG_EMBEDDING_BASE_URL", f"http://me:{KEY}@127.0.0.1/v1"),
        ("PHILORAG_EMBEDDING_BASE_URL", f"http://127.0.0.1/v1?key={KEY}"),
        ("PHILORAG_EMBEDDING_BASE_URL", f"file:///{KEY}"),
        ("PHILORAG_EMBEDDING_API_KEY", f"{KEY} and more"),
        ("PHILORAG_EMBEDDING_API_KEY", f"{KEY}\nX-Other: header"),
    ],
)
def test_an_unusable_secret_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch, variable: str, value: str):
    """What can't be an address or a key stops the start; the message and its traceback don't repeat it."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=variable) as caught:
        load_settings()
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_key_is_in_no_representation():
    """Neither the settings nor what is made of them show the key."""
    settings = Settings(embedding_api_key=KEY)
    embedder = open_endpoint(settings)
    assert KEY not in repr(settings) + repr(embedder)
    embedder.close()


@pytest.mark.parametrize(
    ("model", "prefix", "limits"),
    [
        ("text-embedding-3-small", "", ChunkLimits(1000, 100)),
        ("all-minilm", "", ChunkLimits(224, 22)),
        ("mxbai-embed-large", "", ChunkLimits(480, 48)),
        ("mxbai-embed-large", "word " * 100, ChunkLimits(353, 35)),
    ],
)
def test_passages_are_as_long_as_the_space_takes(model: str, prefix: str, limits: ChunkLimits):
    """An endpoint's passages have 1000 tokens, or as many as its model takes beside the prefix."""
    embedder: Embedder = OpenAIEmbedder(Endpoint(model=model, dimensions=8, passage_prefix=prefix))
    assert chunk_limits(Settings(), embedder) == limits
    embedder.close()


def test_passages_too_long_for_the_model_stop_the_start():
    """A CHUNK_SIZE over the model's limit is refused with the limit."""
    embedder = OpenAIEmbedder(Endpoint(model="mxbai-embed-large", dimensions=8))
    with pytest.raises(ConfigurationError, match="at most 480"):
        chunk_limits(Settings(embedding_base_url="http://localhost:1/v1", chunk_size=500), embedder)
    embedder.close()


def test_no_provider_is_imported_before_it_is_needed():
    """Choosing a provider imports neither the `openai` package nor the local model's runtime."""
    code = "import sys, philorag.services; print({'openai', 'onnxruntime', 'quicktok'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "set()"
