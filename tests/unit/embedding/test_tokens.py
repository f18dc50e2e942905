from __future__ import annotations

import base64
import hashlib
import time
from importlib.resources import files

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from philorag.embedding.local import LocalEmbedder
from philorag.embedding.tokens import TokenCounter, longest_input

# The SHA-256 that tiktoken expects of the file it would download.
CL100K = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
TEXTS = [
    "The unexamined life is not worth living for a human being.",
    "Handle nur nach derjenigen Maxime, durch die du zugleich wollen kannst, dass sie ein Gesetz werde.",
    "ὁ ἀνεξέταστος βίος οὐ βιωτὸς ἀνθρώπῳ",
    "Cogito, ergo sum: quod facile etiam a scepticis concedetur.",
    "| Plato | *Rep.* 514a–517c | <|endoftext|> 1,024\t\n\n",
]


def bundled_ranks() -> dict[bytes, int]:
    data = files("quicktok").joinpath("data", "cl100k.vocab").read_bytes()
    ranks: dict[bytes, int] = {}
    at = 4
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "little")
        ranks[data[at + 2 : at + 2 + length]] = int.from_bytes(data[at + 2 + length : at + 6 + length], "little")
        at += 6 + length
    return ranks


@pytest.fixture(scope="module")
def reference() -> tiktoken.Encoding:
    """tiktoken itself, on the ranks that are bundled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: bundled_ranks())
        return tiktoken.Encoding(**openai_public.cl100k_base())


@pytest.fixture(scope="module")
def exact() -> TokenCounter:
    return TokenCounter("text-embedding-3-small")


def test_the_bundled_ranks_are_openais():
    """The encoding that is bundled is, byte for byte, the file that tiktoken would fetch."""
    lines = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in bundled_ranks().items())
    assert hashlib.sha256(lines).hexdigest() == CL100K


@given(text=st.one_of(st.text(), st.text("aB1 \n'sβῷ.<|endoftext|>", max_size=80)))
def test_counts_are_tiktokens(reference: tiktoken.Encoding, exact: TokenCounter, text: str):
    """OpenAI's models are counted as tiktoken counts, special tokens being plain text."""
    assert exact.count([text, *TEXTS]) == [len(reference.encode_ordinary(one)) for one in (text, *TEXTS)]


def test_other_models_are_counted_with_caution(embedder: LocalEmbedder):
    """A model of unknown tokens gets no fewer than the tokenizer of multilingual-e5 counts."""
    cautious = TokenCounter("multilingual-e5-small:latest").count(TEXTS)
    assert all(ours >= theirs for ours, theirs in zip(cautious, embedder.count_tokens(TEXTS), strict=True))


def test_a_lone_surrogate_can_be_counted(exact: TokenCounter):
    """What has no UTF-8 form is counted as its replacement."""
    assert exact.count(["\ud800"]) == exact.count(["\ufffd"])


@pytest.mark.parametrize("text", ["a" * 1_000_000, "ἀρετή " * 90_000, " " * 1_000_000, "mind and world. " * 62_500])
def test_a_megabyte_is_counted_quickly(exact: TokenCounter, text: str):
    """Counting a megabyte takes less than two seconds, whatever is in it."""
    begun = time.perf_counter()
    exact.count([text])
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize(
    ("model", "longest"),
    [
        ("text-embedding-3-small", 8191),
        ("mxbai-embed-large:latest", 512),
        ("intfloat/multilingual-e5-large-instruct", 512),
        ("BAAI/bge-m3", 8192),
        ("BAAI/bge-small-en-v1.5", 512),
        ("snowflake-arctic-embed2", 8192),
        ("snowflake-arctic-embed:335m", 512),
        ("text-embedding-nomic-embed-text-v1.5", 2048),
        ("somebody/something-new", 8192),
    ],
)
def test_a_models_limit_is_known_by_its_name(model: str, longest: int):
    """Publisher and edition don't hide a model that is known."""
    assert longest_input(model) == longest
