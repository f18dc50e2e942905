import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from philorag.ingestion.normalise import clean, normalise_lines, normalise_prose

ODD = (
    "\u00a0\u00ad\u200b\u200c\u200d\u202f\ufeff\u0301\u0345\x00\x85\u2028\r\n\t "
    "\u0627\u0915\u094d\u1f00\u03b1\U000e0041\ud800"
)
TEXT = st.text(st.one_of(st.characters(), st.sampled_from(ODD)), max_size=60)


@given(TEXT)
def test_each_form_is_idempotent(text: str):
    """Normalising what is normalised changes nothing."""
    for form in (clean, normalise_prose, normalise_lines):
        assert form(form(text)) == form(text)


@given(TEXT)
def test_forms_are_nfc_without_invisible_characters(text: str):
    """Whatever comes in, NFC goes out, with no control character but the line feed and the tab."""
    for form in (clean, normalise_prose, normalise_lines):
        result = form(text)
        assert unicodedata.is_normalized("NFC", result)
        assert not {c for c in result if unicodedata.category(c) in {"Cc", "Cs"}} - {"\n", "\t"}


@given(TEXT)
def test_prose_is_one_line_with_bare_ends(text: str):
    """Prose has single spaces only, and none at its ends."""
    result = normalise_prose(text)
    assert result == " ".join(result.split())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("ἀ\u0301νθρωπος", "ἄνθρωπος"),
        ("“Sein” – ‘Zeit’ « être »", "“Sein” – ‘Zeit’ « être »"),
        ("phi\u00adlo\u200bso\ufeffphy", "philosophy"),
        ("p.\u00a012", "p. 12"),
        ("q\u0304\u0323", "q\u0323\u0304"),
        ("a\u2028b\tc\r\nd", "a b c d"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a\u200db", "ab"),
        ("ignore\U000e0041\u202ethis", "ignorethis"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
    ],
)
def test_prose_keeps_what_matters_to_scholars(raw: str, expected: str):
    """Greek, combining marks and quotation marks stay; layout and invisible characters go."""
    assert expected == normalise_prose(raw)


def test_lines_keep_breaks_and_inner_spaces():
    """Verse and code keep their lines, but neither trailing spaces nor piles of empty lines."""
    assert normalise_lines("\n a  \r\n  b\n\n\n\nc \n") == "a\n  b\n\nc"


@pytest.mark.timeout(5)
def test_a_long_run_of_spaces_takes_linear_time():
    """A million spaces before a letter are no reason to wait."""
    assert normalise_lines("a" + " " * 1_000_000 + "\n" + " " * 0 + "b") == "a\nb"
    assert normalise_prose("x" + " " * 1_000_000 + "y") == "x y"
