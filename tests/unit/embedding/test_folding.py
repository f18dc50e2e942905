import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from philorag.embedding.greek import FOLDING, fold_polytonic

GREEK = [chr(point) for point in (*range(0x386, 0x3E2), *range(0x1F00, 0x2000)) if chr(point).isalpha()]
MARKS = ["\u0300", "\u0301", "\u0304", "\u0306", "\u0308", "\u0313", "\u0314", "\u0323", "\u0342", "\u0345"]
POLYTONIC_MARKS = {"\u0300", "\u0304", "\u0306", "\u0313", "\u0314", "\u0342", "\u0345"}

greek_letters = st.text(st.sampled_from(GREEK))
mixed_text = st.text(
    st.one_of(st.sampled_from(GREEK), st.sampled_from(MARKS), st.sampled_from("aeèāß .\n"), st.characters())
)
without_greek = st.text(
    st.characters().filter(
        lambda character: not ("\u0370" <= character <= "\u03ff" or "\u1f00" <= character <= "\u1fff")
    )
)


@pytest.mark.parametrize(
    ("polytonic", "monotonic"),
    [
        ("Μῆνιν ἄειδε, θεά", "Μήνιν άειδε, θεά"),
        ("ἁρμονίᾳ τῇ ψυχῇ", "αρμονία τή ψυχή"),
        ("τὸ δὲ καλὸν ᾧ", "τό δέ καλόν ώ"),
        ("Πηληϊάδεω προΐστημι", "Πηληϊάδεω προΐστημι"),
        ("ᾱ ῐ Ᾰ", "α ι Α"),
        ("Ὅμηρος Ῥόδος ᾍδης", "Όμηρος Ρόδος Άδης"),
        ("μυρί᾽ ἄλγε’", "μυρί᾽ άλγε’"),
    ],
)
def test_folds_words(polytonic, monotonic):
    """Breathings, iota subscript and length marks go; grave and circumflex become acute; diaeresis stays."""
    assert monotonic == fold_polytonic(polytonic)


def test_keeps_marks_of_other_scripts():
    """Marks on Latin and Coptic letters stay, even beside Greek."""
    text = "père, mētis, a\u0300, \u03e3\u0304"

    assert text + " ή" == fold_polytonic(text + " ἣ")


def test_the_folding_is_named():
    """The name that enters the space's identity changes with the rule, so this test changes with both."""
    assert FOLDING == "polytonic-to-monotonic/1"


@given(mixed_text)
def test_is_idempotent(text):
    """Folding a folded text changes nothing."""
    once = fold_polytonic(text)

    assert once == fold_polytonic(once)


@given(without_greek)
def test_leaves_other_text_alone(text):
    """A text without Greek letters comes back as it went in."""
    assert text == fold_polytonic(text)


@given(greek_letters)
def test_composed_and_decomposed_fold_alike(text):
    """The spelling in code points doesn't matter."""
    assert fold_polytonic(text) == fold_polytonic(unicodedata.normalize("NFD", text))


@given(greek_letters)
def test_nothing_polytonic_remains(text):
    """No Greek letter keeps a mark that monotonic Greek hasn't got."""
    assert not POLYTONIC_MARKS.intersection(unicodedata.normalize("NFD", fold_polytonic(text)))


@given(greek_letters, without_greek)
def test_scripts_fold_apart(greek, other):
    """What stands after a line break doesn't influence the folding of what stands before it."""
    assert fold_polytonic(greek) + "\n" + other == fold_polytonic(greek + "\n" + other)
