"""What folding makes equal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from philorag.storage.analyzers import ANALYZERS, analyzer_for, fold


@given(st.text())
def test_folding_twice_changes_nothing(text):
    """`fold` is idempotent."""
    assert fold(fold(text)) == fold(text)


@given(st.text())
def test_composed_and_decomposed_text_fold_alike(text):
    """The normal form that a text happens to be in doesn't matter."""
    assert fold(unicodedata.normalize("NFC", text)) == fold(unicodedata.normalize("NFD", text))


@given(st.text())
def test_nothing_but_words_and_single_spaces_is_left(text):
    """Folded text is words parted by single spaces."""
    assert all(word.isalnum() or not word.isascii() for word in fold(text).split(" ") if word)
    assert fold(text) == " ".join(fold(text).split())


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("Épistémologie", "epistemologie"),
        ("Über", "uber"),
        ("Straße", "STRASSE"),
        ("œuvre", "oeuvre"),
        ("Æneis", "aeneis"),
        ("ﬁnal", "final"),
        ("Kierkegaard, Søren", "kierkegaard soren"),
        ("Łukasiewicz", "lukasiewicz"),
        ("λόγος", "ΛΟΓΟΣ"),
        ("λόγος", "λογοσ"),
        ("ἀρχή", "αρχη"),
        ("τῷ ὄντι", "τω οντι"),
        ("meſſage", "message"),
        ("a priori—a posteriori", "a priori a posteriori"),
        ("snake_case", "snake case"),
        ("«Être»", "etre"),
    ],
)
def test_what_scholars_do_not_type_is_folded_away(written, typed):
    """Case, diacritics, breathings, ligatures, final sigma and punctuation don't part a word from its query."""
    assert fold(written) == fold(typed)


@pytest.mark.parametrize(("written", "typed"), [("virtvs", "virtus"), ("Iulius", "Julius"), ("VNIVERSVM", "universum")])
def test_latin_takes_u_for_v_and_i_for_j(written, typed):
    """In Latin u and v, i and j are one letter each; elsewhere they aren't."""
    latin, english = analyzer_for("la"), analyzer_for("en")
    assert latin.prepare(written) == latin.prepare(typed)
    assert english.prepare("vine") != english.prepare("uine")


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("en", "english/1"),
        ("en-GB", "english/1"),
        ("GRC", "greek/1"),
        ("la", "latin/1"),
        ("xx", "plain/1"),
        (None, "plain/1"),
    ],
)
def test_a_language_has_one_analyzer(language, name):
    """Regions and case don't matter, and what nobody knows is taken plainly."""
    assert analyzer_for(language).name == name


def test_every_analyzer_is_found_by_its_name():
    """What is stored with a passage leads back to the analyzer."""
    assert all(ANALYZERS[name].name == name for name in ANALYZERS)
    assert "plain/1" in ANALYZERS
