from __future__ import annotations

import base64
import logging
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.endpoint import FakeEndpoint, Reply, embedding_of, running_endpoint

from philorag.embedding.openai import Endpoint, OpenAIEmbedder
from philorag.embedding.protocol import Embedder, SpaceIdentity
from philorag.embedding.retrying import Retries
from philorag.errors import EmbeddingFailed

KEY = "sk-very-secret-0123456789"


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return False

    def retries(self) -> Retries:
        return Retries(self.wait, lambda: self.now, lambda: 1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeEndpoint]:
    with running_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(server: FakeEndpoint) -> FakeEndpoint:
    server.replies, server.always, server.dimensions = [], None, 16
    server.requests.clear()
    server.headers.clear()
    return server


@pytest.fixture
def clock() -> Time:
    return Time()


EMBEDDERS: list[OpenAIEmbedder] = []


@pytest.fixture(autouse=True)
def everything_closes() -> Iterator[None]:
    yield
    while EMBEDDERS:
        EMBEDDERS.pop().close()


def kept(embedder: OpenAIEmbedder) -> OpenAIEmbedder:
    EMBEDDERS.append(embedder)
    return embedder


def opened(endpoint: FakeEndpoint, clock: Time | None = None, **options: Any) -> OpenAIEmbedder:
    given = {"model": "nomic-embed-text", "base_url": endpoint.base_url, "api_key": KEY, "dimensions": 16, **options}
    return kept(OpenAIEmbedder(Endpoint(**given), (clock or Time()).retries()))


def row(embedding: object, index: object = 0) -> dict[str, object]:
    return {"object": "embedding", "index": index, "embedding": embedding}


def answer(*rows: object) -> Reply:
    return Reply(body={"object": "list", "data": rows, "model": "m"})


def failure(embedder: OpenAIEmbedder, *texts: str) -> EmbeddingFailed:
    with pytest.raises(EmbeddingFailed) as caught:
        embedder.embed_passages(texts or ["a"])
    return caught.value


class TestSpace:
    def test_dimensions_are_found_by_embedding_a_word(self, endpoint: FakeEndpoint):
        """Where the dimensions aren't given, one request finds them, and it asks for none."""
        embedder: Embedder = opened(endpoint, dimensions=None)
        assert embedder.space == SpaceIdentity("openai", "nomic-embed-text", "plain", 16, "none")
        assert [len(request["input"]) for request in endpoint.requests] == [1]
        assert "dimensions" not in endpoint.requests[0]

    def test_given_dimensions_are_asked_for(self, endpoint: FakeEndpoint):
        """Given dimensions need no request at the start, and every later one names them."""
        embedder = opened(endpoint, dimensions=7)
        assert not endpoint.requests
        assert embedder.embed_query("a").shape == (7,)
        assert endpoint.requests[0]["dimensions"] == 7

    def test_openai_is_not_asked_what_is_known(self):
        """The dimensions of OpenAI's own models are known without a network."""
        embedder = kept(OpenAIEmbedder(Endpoint(model="text-embedding-3-large", api_key=KEY)))
        assert embedder.space.dimensions == 3072

    def test_the_passage_prefix_belongs_to_the_space(self, endpoint: FakeEndpoint):
        """Passages after another prefix have other vectors, so that is another space; a query's prefix isn't."""
        plain = opened(endpoint).space
        assert opened(endpoint, query_prefix="query: ").space == plain
        assert opened(endpoint, passage_prefix="passage: ").space != plain

    def test_the_address_does_not_belong_to_the_space(self, endpoint: FakeEndpoint):
        """A model that moves to another server keeps its space."""
        assert opened(endpoint).space == opened(endpoint, base_url="http://127.0.0.1:1/v1").space

    def test_vectors_that_cannot_be_stored_are_refused_at_the_start(self, endpoint: FakeEndpoint):
        """A model whose vectors are too long says so before anything is embedded."""
        endpoint.dimensions = 4001
        with pytest.raises(EmbeddingFailed, match="PHILORAG_EMBEDDING_DIMENSIONS"):
            opened(endpoint, dimensions=None)


class TestRequests:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
    @given(texts=st.lists(st.text("abc αβ", min_size=1).filter(str.strip), max_size=12), batch=st.integers(1, 6))
    def test_order_is_restored_whatever_the_batch(self, endpoint: FakeEndpoint, texts: list[str], batch: int):
        """Each text gets its own vector, in batches no larger than allowed, though answers come in another order."""
        endpoint.requests.clear()
        vectors = opened(endpoint, batch=batch).embed_passages(texts)
        assert vectors.shape == (len(texts), 16)
        assert vectors.tolist() == [embedding_of(text) for text in texts]
        assert all(len(request["input"]) <= batch for request in endpoint.requests)

    def test_a_request_holds_no_more_tokens_than_openai_takes(self, endpoint: FakeEndpoint):
        """Long texts are spread over more requests than the batch alone would need."""
        opened(endpoint, batch=2048).embed_passages(["ἀ " * 30_000] * 3)
        assert [len(request["input"]) for request in endpoint.requests] == [2, 1]

    def test_numbers_are_asked_for(self, endpoint: FakeEndpoint):
        """Ollama, TEI and LM Studio answer numbers, not base64, so that is what is asked for."""
        opened(endpoint).embed_query("a")
        assert endpoint.requests[0]["encoding_format"] == "float"

    def test_prefixes_go_before_the_texts(self, endpoint: FakeEndpoint):
        """Queries and passages each have their prefix."""
        embedder = opened(endpoint, query_prefix="query: ", passage_prefix="passage: ")
        embedder.embed_query("a")
        embedder.embed_passages(["b"])
        assert [request["input"] for request in endpoint.requests] == [["query: a"], ["passage: b"]]

    def test_nothing_of_the_shell_is_sent(self, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch):
        """Keys, organisations, headers and addresses in OPENAI_* variables reach no endpoint."""
        for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID"):
            monkeypatch.setenv(f"OPENAI_{name}", "from-the-shell")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: from-the-shell\nAuthorization: Bearer from-the-shell")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
        opened(endpoint, api_key=None).embed_query("a")
        opened(endpoint).embed_query("a")
        assert "authorization" not in endpoint.headers[0]
        assert endpoint.headers[1]["authorization"] == f"Bearer {KEY}"
        assert "from-the-shell" not in str(endpoint.headers)
        assert [name for name in endpoint.headers[0] if name.startswith("x-")] == ["x-stainless-raw-response"]

    def test_a_lone_surrogate_is_sent_as_a_replacement(self, endpoint: FakeEndpoint):
        """What has no UTF-8 form doesn't keep the rest of the text out."""
        opened(endpoint).embed_query("a\ud800b")
        assert endpoint.requests[0]["input"] == ["a\ufffdb"]

    @pytest.mark.parametrize("text", ["", " \n"])
    def test_an_empty_text_is_refused_here(self, endpoint: FakeEndpoint, text: str):
        """Endpoints differ in what they make of an empty text, so none is asked."""
        assert "empty" in failure(opened(endpoint), "a", text).message
        assert not endpoint.requests

    def test_a_redirect_is_not_followed(self, endpoint: FakeEndpoint):
        """A text goes where the settings say and nowhere else."""
        endpoint.replies = [Reply(307, b"", {"location": f"{endpoint.base_url}/elsewhere"})]
        assert "PHILORAG_EMBEDDING_BASE_URL" in failure(opened(endpoint)).message
        assert len(endpoint.requests) == 1


class TestAnswers:
    def test_vectors_come_as_the_model_made_them(self, endpoint: FakeEndpoint):
        """Nothing is scaled to unit length."""
        assert np.linalg.norm(opened(endpoint).embed_query("mind mind mind")) == pytest.approx(3)

    def test_base64_is_understood_too(self, endpoint: FakeEndpoint):
        """A server that answers base64 although it was asked for numbers is understood."""
        packed = base64.b64encode(np.array([1, 2, 3], "<f4").tobytes()).decode()
        endpoint.replies = [answer(row(packed))]
        assert opened(endpoint, dimensions=3).embed_query("a").tolist() == [1, 2, 3]

    def test_answers_without_indexes_keep_their_order(self, endpoint: FakeEndpoint):
        """A server that numbers nothing answers in the order of the texts."""
        endpoint.replies = [answer({"embedding": [1]}, {"embedding": [2]})]
        assert opened(endpoint, dimensions=1).embed_passages(["a", "b"]).tolist() == [[1], [2]]

    @pytest.mark.parametrize(
        ("reply", "says"),
        [
            pytest.param(answer(row([1.0, 2.0])), "1 vectors for 2 texts", id="fewer"),
            pytest.param(answer(*[row([1.0, 2.0], n) for n in range(3)]), "3 vectors for 2 texts", id="more"),
            pytest.param(answer(row([1.0] * 3), row([1.0] * 3, 1)), "length 3 instead of 2", id="another length"),
            pytest.param(answer(row([1.0, 2.0]), row([1.0], 1)), "lists of numbers of one length", id="ragged"),
            pytest.param(answer(row([1.0, 2.0]), row([1.0, 2.0])), "missing or repeated", id="index repeated"),
            pytest.param(answer(row([1.0, 2.0]), row([1.0, 2.0], 7)), "missing or repeated", id="index unknown"),
            pytest.param(answer(row([1.0, 2.0]), row([1.0, float("nan")], 1)), "NaN", id="NaN"),
            pytest.param(answer(row([1.0, 2.0]), row([1.0, None], 1)), "NaN", id="null"),
            pytest.param(answer(row([1.0, 2.0]), row([1e300, 1.0], 1)), "half precision", id="overflow"),
            pytest.param(answer(row([1.0, 2.0]), row([1e5, 1.0], 1)), "half precision", id="too large"),
            pytest.param(answer(row([1.0, 2.0]), row([0.0, 0.0], 1)), "zeros", id="zero"),
            pytest.param(answer(row([1.0, 2.0]), row(["1", "2"], 1)), "lists of numbers", id="words"),
            pytest.param(answer(row([1.0, 2.0]), row("????", 1)), "lists of numbers", id="no base64"),
            pytest.param(answer(row([]), row([], 1)), "without numbers", id="empty vectors"),
            pytest.param(answer("a", "b"), "without embeddings", id="no rows"),
            pytest.param(Reply(body={"error": {"message": "model is loading"}}), "without embeddings", id="other JSON"),
            pytest.param(Reply(body=[]), "without embeddings", id="a list"),
            pytest.param(Reply(body=b"<html>Welcome</html>", headers={"content-type": "text/html"}), "JSON", id="HTML"),
            pytest.param(Reply(body=b'{"data": [{"ind'), "JSON", id="cut off"),
            pytest.param(Reply(body=b"[" * 200_000), "JSON", id="deep"),
            pytest.param(Reply(body=b"\xff\xfe\x00"), "JSON", id="bytes"),
            pytest.param(Reply(body=b""), "answered nothing", id="nothing"),
        ],
    )
    def test_a_strange_answer_is_a_failure_that_says_what_it_is(
        self, endpoint: FakeEndpoint, clock: Time, reply: Reply, says: str
    ):
        """What can't be used as vectors fails at once, with what it is and which setting to look at."""
        endpoint.always = reply
        message = failure(opened(endpoint, clock, dimensions=2), "a", "b").message
        assert says in message
        assert "PHILORAG_EMBEDDING_" in message
        assert not clock.waits


class TestRefusals:
    @pytest.mark.parametrize("status", [401, 403])
    def test_a_refused_key_names_its_setting(self, endpoint: FakeEndpoint, clock: Time, status: int):
        """A refused key isn't tried again, and the failure says which setting to correct."""
        endpoint.always = Reply(status, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
        message = failure(opened(endpoint, clock)).message
        assert "refused the key" in message
        assert "PHILORAG_EMBEDDING_API_KEY" in message
        assert len(endpoint.requests) == 1

    def test_a_missing_key_is_asked_for(self, endpoint: FakeEndpoint):
        """Where no key is set, the failure asks for one."""
        endpoint.always = Reply(401, {"error": "no key"})
        assert "asks for a key" in failure(opened(endpoint, api_key=None)).message

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
    def test_no_failure_shows_the_key(self, endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture, status: int):
        """The key is in no message, traceback, log or representation, though the endpoint repeats it."""
        caplog.set_level(logging.DEBUG)
        endpoint.always = Reply(status, {"error": {"message": f"your key is {KEY}"}})
        embedder = opened(endpoint)
        error = failure(embedder)
        chain: BaseException | None = error
        while chain is not None:
            assert KEY not in f"{chain!r}"
            chain = chain.__cause__ or chain.__context__
        assert KEY not in "".join(traceback.format_exception(error)) + str(error.details)
        assert KEY not in caplog.text + repr(embedder) + repr(embedder.__dict__)

    def test_an_unknown_model_is_told_in_the_endpoints_words(self, endpoint: FakeEndpoint):
        """What Ollama says of a model that it hasn't got is passed on."""
        endpoint.always = Reply(404, {"error": {"message": 'model "x" not found, try pulling it first'}})
        message = failure(opened(endpoint)).message
        assert "try pulling it first" in message
        assert "PHILORAG_EMBEDDING_MODEL" in message

    def test_a_text_that_is_too_long_names_the_setting(self, endpoint: FakeEndpoint):
        """An endpoint that refuses a text for its length leads to CHUNK_SIZE."""
        endpoint.always = Reply(400, {"error": {"message": "maximum context length is 512 tokens"}})
        message = failure(opened(endpoint)).message
        assert "maximum context length" in message
        assert "CHUNK_SIZE" in message

    def test_a_spent_quota_is_not_tried_again(self, endpoint: FakeEndpoint, clock: Time):
        """OpenAI's 429 for an account without money won't pass, so nobody waits for it."""
        endpoint.always = Reply(429, {"error": {"message": "You exceeded", "code": "insufficient_quota"}})
        assert "quota" in failure(opened(endpoint, clock)).message
        assert not clock.waits


class TestRetries:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 0])
    def test_what_passes_is_tried_again(self, endpoint: FakeEndpoint, clock: Time, status: int):
        """After two failures that pass, and growing waits, the third attempt counts."""
        endpoint.replies = [Reply(status, {}), Reply(status, {})]
        assert opened(endpoint, clock).embed_passages(["a"]).shape == (1, 16)
        assert clock.waits == [0.5, 1.0]

    def test_retry_after_is_obeyed(self, endpoint: FakeEndpoint, clock: Time):
        """The wait is as long as the endpoint asks."""
        endpoint.replies = [Reply(429, {}, {"retry-after": "17"})]
        opened(endpoint, clock).embed_passages(["a"])
        assert clock.waits == [17]

    def test_a_wait_longer_than_patience_fails_at_once(self, endpoint: FakeEndpoint, clock: Time):
        """Nobody waits for an attempt that patience won't allow, and the failure says when to come back."""
        endpoint.always = Reply(429, {"error": {"message": "slow down"}}, {"retry-after": "3600"})
        error = failure(opened(endpoint, clock))
        assert not clock.waits
        assert error.details == {"retry_after_s": 3600}
        assert "slow down" in error.message
        assert "3600 s" in error.message

    @pytest.mark.parametrize("headers", [{}, {"retry-after": "0"}, {"retry-after": "50"}])
    def test_patience_is_bounded(self, endpoint: FakeEndpoint, clock: Time, headers: dict[str, str]):
        """An endpoint that only ever fails is left after a bounded time and number of attempts."""
        endpoint.always = Reply(503, {}, headers)
        assert "fails (503)" in failure(opened(endpoint, clock)).message
        assert clock.now <= 120
        assert len(endpoint.requests) <= 8

    def test_a_query_is_less_patient(self, endpoint: FakeEndpoint, clock: Time):
        """Somebody waits for a search, so it gives up sooner than an ingest."""
        endpoint.always = Reply(503, {}, {"retry-after": "31"})
        with pytest.raises(EmbeddingFailed):
            opened(endpoint, clock).embed_query("a")
        assert not clock.waits

    def test_nobody_there_is_a_failure(self, clock: Time):
        """A refused connection says so after the retries, with the address but not the path."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            error = failure(opened(FakeEndpoint(f"http://127.0.0.1:{port}/v1"), clock))
        assert f"127.0.0.1:{port} can't be reached" in error.message
        assert "PHILORAG_EMBEDDING_BASE_URL" in error.message
        assert clock.waits

    def test_silence_is_a_failure(self, clock: Time):
        """An endpoint that takes the request and says nothing fails when patience ends."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
            embedder = opened(FakeEndpoint(address), clock, passage_patience=0.2)
            assert "didn't answer within" in failure(embedder).message

    def test_closing_ends_a_wait(self, endpoint: FakeEndpoint):
        """Who waits for a second attempt fails as soon as the embedder closes."""
        endpoint.always = Reply(429, {}, {"retry-after": "60"})
        embedder = OpenAIEmbedder(Endpoint(model="m", base_url=endpoint.base_url, dimensions=2))
        threading.Timer(0.2, embedder.close).start()
        begun = time.monotonic()
        assert "closing" in failure(embedder).message
        assert "closing" in failure(embedder).message
        assert time.monotonic() - begun < 10
