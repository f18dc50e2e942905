"""How text becomes the terms of the lexical leg: folding here, stemming by PostgreSQL's configurations."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

__all__ = ["ANALYZERS", "Analyzer", "analyzer_for", "fold"]

_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ſ": "s", "ø": "o", "ð": "d", "þ": "th", "ł": "l", "ς": "σ", "ϲ": "σ"}
)
_LATIN = str.maketrans({"v": "u", "j": "i"})
_NOT_WORD = re.compile(r"[\W_]+")


def fold(text: str) -> str:
    """*text* without what scholars don't type: case, diacritics, breathings, ligatures, punctuation."""
    # Bare before folding case, which would write an iota subscript out; the letter inside 𝐀 has a case only once it
    # is out; and folding case may bring marks back.
    lower = _bare(_bare(text).casefold().translate(_LETTERS))
    return _NOT_WORD.sub(" ", lower.translate(_LETTERS)).strip()


def _bare(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character))


@dataclass(frozen=True, slots=True)
class Analyzer:
    """One way to make terms. *name* carries the version: a change of it rebuilds postings."""

    name: str
    configuration: str
    latin: bool = False

    def prepare(self, text: str) -> str:
        """*text* as it goes to PostgreSQL's `to_tsvector` under *configuration*."""
        folded = fold(text)
        return folded.translate(_LATIN) if self.latin else folded


_STEMMED = {
    "en": "english",
    "de": "german",
    "fr": "french",
    "it": "italian",
    "es": "spanish",
    "nl": "dutch",
    "pt": "portuguese",
    "el": "greek",
    "grc": "greek",
    "ru": "russian",
    "da": "danish",
    "sv": "swedish",
    "no": "norwegian",
    "nb": "norwegian",
    "fi": "finnish",
}
_PLAIN = Analyzer("plain/1", "philorag_plain")
_BY_LANGUAGE = {language: Analyzer(f"{name}/1", f"philorag_{name}") for language, name in _STEMMED.items()}
_BY_LANGUAGE["la"] = Analyzer("latin/1", "philorag_plain", latin=True)

ANALYZERS: dict[str, Analyzer] = {analyzer.name: analyzer for analyzer in (*_BY_LANGUAGE.values(), _PLAIN)}


def analyzer_for(language: str | None) -> Analyzer:
    """The analyzer of passages in *language* (an ISO 639 code, perhaps with a region)."""
    return _BY_LANGUAGE.get((language or "").split("-")[0].lower(), _PLAIN)
