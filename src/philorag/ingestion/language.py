"""Which language a passage is in: what the source declares, checked by script, else detected."""

from __future__ import annotations

import re
from functools import lru_cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

__all__ = ["language_of", "normalised_code"]

# Below this many letters a detector guesses.
_ENOUGH_LETTERS = 60
_GREEK = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]")
_POLYTONIC = re.compile(r"[\u1f00-\u1fff]")
_LETTER = re.compile(r"[^\W\d_]")
_THREE_LETTER = {"eng": "en", "deu": "de", "ger": "de", "fra": "fr", "fre": "fr", "lat": "la", "ell": "el", "gre": "el"}
_CANDIDATES = ["en", "de", "fr", "it", "es", "la", "el", "nl", "pt", "ru", "da", "sv", "no", "fi"]


def normalised_code(declared: str | None) -> str | None:
    """An ISO 639-1 code where there is one (`grc` stays), without region; None for nothing usable."""
    code = (declared or "").strip().lower().replace("_", "-").split("-")[0]
    code = _THREE_LETTER.get(code, code)
    return code if re.fullmatch(r"[a-z]{2,3}", code) and code != "und" else None


def language_of(text: str, declared: str | None) -> str | None:
    """The language of *text*; *declared* holds unless the script contradicts it or it is absent."""
    letters = len(_LETTER.findall(text))
    greek = len(_GREEK.findall(text))
    code = normalised_code(declared)
    if letters and greek > letters / 2:
        return code if code in {"el", "grc"} else ("grc" if _POLYTONIC.search(text) else "el")
    if code in {"el", "grc"}:
        code = None
    if code is not None:
        return code
    return str(_identifier().classify(text)[0]) if letters >= _ENOUGH_LETTERS else None


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(_CANDIDATES)
    return identifier
