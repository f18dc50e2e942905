"""Embeddings from any endpoint that speaks OpenAI's protocol: OpenAI, Ollama, vLLM, TEI, LM Studio and others.

The texts go out as they are: that polytonic Greek is folded helps the local model, and nobody has measured it for
others. The vectors come back as they are, too.

Of the space's identity the model's name, the dimensions and the passages' prefix are part; the address isn't, so that a
model may move. Neither is the queries' prefix: no stored vector depends on it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx2
import numpy as np
import openai

from philorag.embedding.answers import read_vectors, said
from philorag.embedding.protocol import SpaceIdentity
from philorag.embedding.retrying import Passing, Retries, closing, retry_after
from philorag.embedding.tokens import OPENAI_DIMENSIONS, TokenCounter, longest_input, sendable
from philorag.errors import EmbeddingFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from philorag.embedding.protocol import Vectors

__all__ = ["OPENAI_URL", "Endpoint", "OpenAIEmbedder"]

OPENAI_URL: Final = "https://api.openai.com/v1"
_CONNECT_TIMEOUT: Final = 10.0
# OpenAI takes 300,000 tokens in a request.
_REQUEST_TOKENS: Final = 250_000
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SENT_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
    # By this the package knows that it was asked for the answer as it came.
    | {"x-stainless-raw-response"}
)
_UNAUTHORISED: Final = frozenset({401, 403})
_TOO_MANY: Final = 429
_SERVER_FAILS: Final = 500
_PASSING: Final = frozenset({408, 409, 425, _TOO_MANY})
_LARGEST_DIMENSIONS: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint and how it wants to be asked. *batch* is in texts; patience, in seconds, bounds retries too."""

    model: str
    base_url: str = OPENAI_URL
    api_key: str | None = field(default=None, repr=False)
    dimensions: int | None = None
    batch: int = 32
    query_prefix: str = ""
    passage_prefix: str = ""
    query_patience: float = 30.0
    passage_patience: float = 120.0

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


class OpenAIEmbedder:
    """An `Embedder` over an endpoint.

    Unless the dimensions are given, or known because it is OpenAI's own, one text is embedded to find them. Raises
    `EmbeddingFailed`.
    """

    def __init__(self, endpoint: Endpoint, retries: Retries | None = None) -> None:
        self._endpoint = endpoint
        self._closed = threading.Event()
        self._retries = retries or Retries(self._closed.wait)
        self._counter = TokenCounter(endpoint.model)
        # What isn't given here, the package would take from the OPENAI_* variables of the shell.
        self._client = openai.OpenAI(
            api_key=endpoint.api_key or "none",
            admin_api_key="none",
            base_url=endpoint.base_url,
            max_retries=0,
            http_client=_http_client(endpoint),
        )
        try:
            self._dimensions = endpoint.dimensions or self._usual_dimensions() or self._found_dimensions()
        except EmbeddingFailed:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._endpoint.model!r} at {self._endpoint.host!r})"

    @property
    def host(self) -> str:
        return self._endpoint.host

    @property
    def space(self) -> SpaceIdentity:
        prefix = self._endpoint.passage_prefix
        revision = f"passages after {prefix!r}" if prefix else "plain"
        return SpaceIdentity("openai", self._endpoint.model, revision, self._dimensions, "none")

    @property
    def max_tokens(self) -> int:
        """Less by the passages' prefix, which may be a long instruction."""
        return longest_input(self._endpoint.model) - self.count_tokens([self._endpoint.passage_prefix])[0]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._counter.count(texts)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        prefixed = [self._endpoint.passage_prefix + text for text in texts]
        answers = [self._embed(batch, self._endpoint.passage_patience) for batch in self._batches(prefixed)]
        return np.concatenate([np.empty((0, self._dimensions), np.float32), *answers])

    def embed_query(self, text: str) -> Vectors:
        vector: Vectors = self._embed([self._endpoint.query_prefix + text], self._endpoint.query_patience)[0]
        return vector

    def probe(self) -> None:
        """Embed a word, to see whether it works. Raises `EmbeddingFailed`."""
        self._embed(["philosophy"], self._endpoint.query_patience)

    def close(self) -> None:
        """End every wait between two attempts; what is waiting fails, and so does what comes later."""
        self._closed.set()
        self._client.close()

    def _usual_dimensions(self) -> int | None:
        return OPENAI_DIMENSIONS.get(self._endpoint.model) if self._endpoint.base_url == OPENAI_URL else None

    def _found_dimensions(self) -> int:
        found = self._ask(["philosophy"], self._endpoint.query_patience, None).shape[1]
        if found > _LARGEST_DIMENSIONS:
            raise EmbeddingFailed(
                f"The model {self._endpoint.model} makes vectors of length {found}, and {_LARGEST_DIMENSIONS} is the "
                "longest that can be stored. If it can shorten them, set PHILORAG_EMBEDDING_DIMENSIONS."
            )
        return int(found)

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        room = _REQUEST_TOKENS
        for text, tokens in zip(texts, self.count_tokens(texts), strict=True):
            if batch and (len(batch) == self._endpoint.batch or tokens > room):
                yield batch
                batch, room = [], _REQUEST_TOKENS
            batch.append(text)
            room -= tokens
        if batch:
            yield batch

    def _embed(self, texts: Sequence[str], patience: float) -> Vectors:
        return self._ask(texts, patience, self._dimensions)

    def _ask(self, texts: Sequence[str], patience: float, dimensions: int | None) -> Vectors:
        if not all(text.strip() for text in texts):
            raise EmbeddingFailed("A text to embed is empty: embedding models refuse it. Give it some words.")
        clean = [sendable(text) for text in texts]
        body = self._retries.until_it_works(partial(self._answer, clean, patience), patience)
        return read_vectors(body, len(texts), dimensions)

    def _answer(self, texts: list[str], timeout: float) -> bytes:
        # Raised outside of the handlers: the package's own errors, which may quote a key, stay out of every traceback.
        failure: Exception
        if self._closed.is_set():
            raise closing()
        try:
            answer = self._client.embeddings.with_raw_response.create(
                model=self._endpoint.model,
                input=texts,
                encoding_format="float",
                dimensions=self._endpoint.dimensions or openai.omit,
                timeout=httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_TIMEOUT)),
            )
        except openai.APIStatusError as error:
            failure = self._refusal(error.status_code, error.response.content, error.response.headers)
        except openai.APITimeoutError:
            failure = Passing(self._slow(timeout))
        except openai.APIConnectionError as error:
            failure = Passing(self._unreachable(error.__cause__))
        except openai.OpenAIError:
            failure = EmbeddingFailed(f"The embedding endpoint {self._endpoint.host} answered nonsense.")
        else:
            return answer.http_response.content
        raise failure

    def _refusal(self, status: int, body: bytes, headers: Mapping[str, str]) -> EmbeddingFailed | Passing:
        reason = self._reason(body)
        if status in _UNAUTHORISED:
            return self._failure(
                f"refused the key ({status})" if self._endpoint.api_key else f"asks for a key ({status})",
                "Correct PHILORAG_EMBEDDING_API_KEY, or PHILORAG_EMBEDDING_BASE_URL if it is another endpoint's.",
            )
        if status == _TOO_MANY and b"insufficient_quota" in body:
            return self._failure("has no quota left for this key (429)", "Top the account up, or set another key.")
        if status in _PASSING or status >= _SERVER_FAILS:
            seconds = retry_after(headers)
            advice = f"Try again in {seconds:.0f} s." if seconds else "Try again in a minute."
            state = "takes no more requests for now" if status == _TOO_MANY else "fails"
            details = {} if seconds is None else {"retry_after_s": round(seconds)}
            return Passing(self._failure(f"{state} ({status}){reason}", advice, **details), seconds)
        return self._failure(f"answered {status}{reason}", self._advice(status))

    def _advice(self, status: int) -> str:
        if status < 400 or status in {404, 405, 410}:  # noqa: PLR2004 - redirects aren't followed
            return "Correct PHILORAG_EMBEDDING_BASE_URL (most end with /v1) or PHILORAG_EMBEDDING_MODEL."
        if status in {400, 413, 422}:
            dimensions = "unset PHILORAG_EMBEDDING_DIMENSIONS if the model has but one size, "
            return (
                f"See whether PHILORAG_EMBEDDING_MODEL is right, {dimensions if self._endpoint.dimensions else ''}"
                "lower CHUNK_SIZE if the texts are too long, and PHILORAG_EMBEDDING_BATCH if they are too many."
            )
        return "See the endpoint's own log."

    def _slow(self, timeout: float) -> EmbeddingFailed:
        return self._failure(
            f"didn't answer within {timeout:.0f} s", "See whether it is well, or lower PHILORAG_EMBEDDING_BATCH."
        )

    def _unreachable(self, cause: BaseException | None) -> EmbeddingFailed:
        known = isinstance(cause, httpx2.TransportError)
        return self._failure(
            f"can't be reached{f' ({cause})' if known and str(cause) else ''}",
            "Start it, or correct PHILORAG_EMBEDDING_BASE_URL.",
        )

    def _reason(self, body: bytes) -> str:
        words = said(body)
        if self._endpoint.api_key:
            words = words.replace(self._endpoint.api_key, "***")
        return f": {words.rstrip('.')}" if words else ""

    def _failure(self, what: str, advice: str, **details: int) -> EmbeddingFailed:
        return EmbeddingFailed(f"The embedding endpoint {self._endpoint.host} {what}. {advice}", **details)


def _http_client(endpoint: Endpoint) -> httpx2.Client:
    """A client that sends what it must and no more, and nowhere else than it is told."""

    def reduce(request: httpx2.Request) -> None:
        for name in set(request.headers) - _SENT_HEADERS:
            del request.headers[name]
        if endpoint.api_key:
            request.headers["authorization"] = f"Bearer {endpoint.api_key}"

    # A proxy of the shell has no way to a server on this machine.
    elsewhere = urlsplit(endpoint.base_url).hostname not in _LOOPBACK
    return httpx2.Client(follow_redirects=False, trust_env=elsewhere, event_hooks={"request": [reduce]})
