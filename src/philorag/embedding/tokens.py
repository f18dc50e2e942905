"""Tokens of models that are asked over HTTP, counted here and without a network.

OpenAI's embedding models count in cl100k_base, which `quicktok` carries and counts exactly as tiktoken does. Nobody
says what other models count in. They are given a quarter more than cl100k_base: over 7,259 passages in English, Greek,
Latin and mark-up the tokenizer of multilingual-e5 had at the median 1.10, in 99 of 100 passages up to 1.20 times as
many tokens.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import quicktok

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OPENAI_DIMENSIONS", "TokenCounter", "longest_input", "sendable"]

OPENAI_DIMENSIONS: Final = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
_OPENAI_LONGEST: Final = 8191
_UNKNOWN_LONGEST: Final = 8192
# What the models' cards say, and of two editions the smaller. Many servers cut what is longer without a word.
_LONGEST: Final = (
    (r"paraphrase-multilingual", 128),
    (r"all-minilm", 256),
    (r"bge-m3", 8192),
    (r"snowflake-arctic-embed-?(l-v)?2", 8192),
    (r"jina-embeddings-v[234]", 8192),
    (r"nomic-embed-text|embeddinggemma", 2048),
    (r"qwen3-embedding", 8192),
    (r"(^|-)e5-|bge-|gte-(small|base|large)|mxbai-embed|snowflake-arctic-embed|granite-embedding", 512),
)
# Quarters, so that the count of a text stays a whole number without rounding errors.
_EXACT: Final = 4
_CAUTIOUS: Final = 5
# Lone surrogates, as some PDF files yield them, have no UTF-8 form.
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def sendable(text: str) -> str:
    """*text* without lone surrogates."""
    return _SURROGATES.sub("\ufffd", text)


def longest_input(model: str) -> int:
    """The most tokens that *model* takes in one text; of a model that nobody here knows, a large number."""
    name = _bare(model)
    if name in OPENAI_DIMENSIONS:
        return _OPENAI_LONGEST
    return next((longest for pattern, longest in _LONGEST if re.search(pattern, name)), _UNKNOWN_LONGEST)


class TokenCounter:
    """Counts exactly for OpenAI's embedding models, and rather too many than too few for others."""

    def __init__(self, model: str) -> None:
        self._quarters = _EXACT if _bare(model) in OPENAI_DIMENSIONS else _CAUTIOUS
        self._encoding = quicktok.get_encoding("cl100k_base")

    def count(self, texts: Sequence[str]) -> list[int]:
        # One after the other: `quicktok` releases the interpreter's lock, and starting its threads costs more.
        return [-(-self._encoding.count(sendable(text)) * self._quarters // 4) for text in texts]


def _bare(model: str) -> str:
    """The name without its publisher and its edition: `BAAI/bge-m3`, `bge-m3:latest` and `bge-m3` are one."""
    return model.lower().rsplit("/", 1)[-1].split(":", 1)[0]
