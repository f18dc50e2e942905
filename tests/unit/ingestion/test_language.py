from __future__ import annotations

import pytest

from philorag.ingestion.language import language_of, normalised_code

PASSAGES = {
    "en": "The unexamined life is not worth living, said he who had examined it for seventy years and more.",
    "de": "Zwei Dinge erfüllen das Gemüt mit immer neuer und zunehmender Bewunderung und Ehrfurcht.",
    "fr": "Le cœur a ses raisons, que la raison ne connaît point; on le sait en mille choses de la vie.",
    "la": "Quid est ergo tempus? Si nemo ex me quaerat, scio; si quaerenti explicare velim, nescio.",
    "it": "Nel mezzo del cammin di nostra vita mi ritrovai per una selva oscura, ché la diritta via era smarrita.",
    "el": "Όλοι οι άνθρωποι από τη φύση τους επιθυμούν τη γνώση, και απόδειξη είναι η αγάπη των αισθήσεων.",
    "grc": "Πάντες ἄνθρωποι τοῦ εἰδέναι ὀρέγονται φύσει. σημεῖον δ’ ἡ τῶν αἰσθήσεων ἀγάπησις.",
}


@pytest.mark.parametrize("language", sorted(PASSAGES))
def test_a_passage_is_detected(language: str):
    """A sentence or two in a scholar's languages is enough to know it."""
    assert language == language_of(PASSAGES[language], None)


@pytest.mark.parametrize("declared", ["en", "de", "la", "fr"])
def test_what_is_declared_holds(declared: str):
    """A declared language in the script of the text is believed."""
    assert declared == language_of(PASSAGES["la"], declared)


@pytest.mark.parametrize(("declared", "expected"), [("el", "el"), ("grc", "grc"), ("en", "grc"), (None, "grc")])
def test_polytonic_greek_is_ancient_unless_declared_modern(declared: str | None, expected: str):
    """Breathings mean Ancient Greek, also where an English edition declares English."""
    assert expected == language_of("ὁ ἀνεξέταστος βίος", declared)


def test_monotonic_greek_is_modern_unless_declared_ancient():
    """Accents alone are modern spelling, though some editions print Ancient Greek so."""
    assert language_of("ο ανεξέταστος βίος", None) == "el"
    assert language_of("ο ανεξέταστος βίος", "grc") == "grc"


def test_latin_letters_are_not_greek_whatever_is_declared():
    """The English pages of a Greek edition are not Greek."""
    assert language_of(PASSAGES["en"], "grc") == "en"


def test_a_greek_word_does_not_make_a_passage_greek():
    """The script of most letters decides."""
    assert language_of("Aristotle calls it ἐνέργεια.", "en") == "en"


@pytest.mark.parametrize("text", ["", "514a", "Ibid.", "— — —", "🦉"])
def test_a_short_text_is_not_guessed(text: str):
    """A detector errs on a few letters: without a declaration they are in no known language."""
    assert language_of(text, None) is None
    assert language_of(text, "de") == "de"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("en-GB", "en"), ("EN_us", "en"), ("eng", "en"), ("ger", "de"), ("deu", "de"), ("lat", "la"), ("grc", "grc"),
        ("und", None), ("", None), (None, None), ("English", None), ("x", None), (" fr ", "fr"),
    ],
)  # fmt: skip
def test_codes_are_brought_to_one_form(declared: str | None, expected: str | None):
    """A code is two letters where there are two, without its region; what is no code is nothing."""
    assert expected == normalised_code(declared)
