from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.blocks import assert_well_formed, find, texts
from tests.support.files import PdfPage, make_pdf

from philorag.errors import ProcessingError
from philorag.ingestion.readers.pdf import read

BODY = (
    "All men by nature desire to know. An indi-",
    "cation of this is the delight we take in our senses; for",
    "even apart from their usefulness they are loved in",
    "themselves, and above all others the sense of sight.",
)
JOINED = (
    "All men by nature desire to know. An indication of this is the delight we take in our senses; for even apart "
    "from their usefulness they are loved in themselves, and above all others the sense of sight."
)
ENDINGS = ("the first page", "a second one", "this third page", "page number four")


def _read(pages: Sequence[PdfPage | Sequence[str]], **options):
    document = read(make_pdf(pages, **options))
    assert_well_formed(document)
    return document


def _reason(data: bytes) -> str:
    with pytest.raises(ProcessingError) as caught:
        read(data)
    return caught.value.reason


def _book(numbers: list[str], head: str = "THE RUNNING HEAD") -> list[PdfPage]:
    return [
        PdfPage([f"We are on {ending}.", "", *BODY, f"\tThis is the end of {ending}."], head=head, number=number)
        for number, ending in zip(numbers, ENDINGS, strict=False)
    ]


def test_lines_are_joined_to_paragraphs():
    """Broken words are rejoined; an indent and a gap begin a paragraph."""
    document = _read([[*BODY, "\tA second paragraph begins with an indent and goes on", "to its end.", "", "A third."]])
    assert texts(document) == [JOINED, "A second paragraph begins with an indent and goes on to its end.", "A third."]
    assert document.media_type == "application/pdf"


def test_running_heads_and_page_numbers_leave_the_text():
    """What is repeated in the margin of the pages is not text."""
    document = _read(_book(["11", "12", "13", "14"]))
    assert not [text for text in texts(document) if "RUNNING" in text or text.isdigit()]
    assert texts(document).count(JOINED) == 4


def test_declared_page_labels_are_certain():
    """/PageLabels are what is printed, with confidence 1."""
    document = _read([["one page."], ["another page."]], labels=["xii", "1"])
    assert [(block.page_index, block.page_label, block.page_label_confidence) for block in document.blocks] == [
        (0, "xii", 1.0),
        (1, "1", 1.0),
    ]


@pytest.mark.parametrize(
    ("numbers", "labels"),
    [
        (["11", "12", "13", "14"], ["11", "12", "13", "14"]),
        (["11", "", "13", "14"], ["11", "12", "13", "14"]),
        (["ix", "x", "xi", "xii"], ["ix", "x", "xi", "xii"]),
        (["3", "90", "7", "41"], [None] * 4),
        (["", "", "", ""], [None] * 4),
    ],
)
def test_page_labels_are_inferred_only_from_numbers_that_run_along(numbers: list[str], labels: list[str | None]):
    """Three pages in step give labels with a confidence below 1; anything less gives none."""
    document = _read(_book(numbers))
    found = {block.page_index: (block.page_label, block.page_label_confidence) for block in document.blocks}
    assert labels == [found[page][0] for page in range(4)]
    assert all(confidence is None or 0 < confidence < 1 for _, confidence in found.values())


def test_footnotes_are_notes_with_marks():
    """Small type at the foot that opens with a raised sign is a note; the sign in the text its mark."""
    notes = [("1", "Both sexes."), ("2", "To wish,"), ("", "or to want.")]
    document = _read(
        [
            PdfPage(["All men^1^ by nature desire^2^ to know, as he", *BODY[1:]], notes),
            PdfPage(["\tMore of it^1^ comes here on the second page.", *BODY[1:]], [("1", "Another note.")]),
        ]
    )
    first = find(document, "All men by nature desire to know")
    assert first.marks == (("1", 7), ("2", 24))
    assert find(document, "More of it comes").marks == (("1~2", 10),)
    assert [(block.anchor, block.text, block.page_index) for block in document.blocks if block.layer == "note"] == [
        ("1", "Both sexes.", 0),
        ("2", "To wish, or to want.", 0),
        ("1~2", "Another note.", 1),
    ]


def test_a_raised_number_without_a_note_stays():
    """An exponent is text."""
    assert ["It is 10^2 as they say.".replace("^2", "2"), JOINED] == texts(
        _read([["It is 10^2^ as they say.", "", *BODY]])
    )


def test_headings_are_larger_or_bold_or_bookmarked():
    """Size, weight or the outline makes a heading; the section path follows."""
    document = _read(
        [
            PdfPage(["# Chapter One", *BODY, "", "Of the Senses", *BODY], bold=["Of the Senses"]),
            PdfPage(["A plain title", "", *BODY], bookmark="A Plain Title"),
            PdfPage([*BODY], bookmark="Unprinted", bookmark_level=1),
        ]
    )
    assert texts(document, "heading") == ["Chapter One", "Of the Senses", "A plain title"]
    assert document.blocks[3].section_path == ("Chapter One", "Of the Senses")
    assert document.blocks[-1].section_path == ("A plain title", "Unprinted")


def test_document_information_names_title_and_authors():
    """Title and authors are as declared; what a program put there is not believed."""
    document = _read([["text."]], title="On Liberty", author="J. S. Mill; H. Taylor")
    assert (document.title, document.authors) == ("On Liberty", ("J. S. Mill", "H. Taylor"))
    assert document.publication_date is None
    assert _read([["# Real Title", *BODY]], title="Microsoft Word - x.doc").title == "Real Title"


def test_a_pdf_with_a_password_is_encrypted():
    """It says how to get a copy that can be read."""
    assert _reason(make_pdf([["secret"]], password="geheim")) == "encrypted"


def test_a_pdf_without_text_says_how_to_recognise_it():
    """Scans need OCR first."""
    with pytest.raises(ProcessingError) as caught:
        read(make_pdf([[], []]))
    assert (caught.value.reason, caught.value.details["pages"]) == ("no_text", 2)
    assert "ocrmypdf" in caught.value.message


VALID = make_pdf([["# Head", *BODY], PdfPage(["text^1^ here."], notes=[("1", "Note.")])], title="T")


@pytest.mark.parametrize(
    "data", [VALID[:300], b"%PDF-1.7 nothing more", b"%PDF-"], ids=["cut off", "no body", "only magic"]
)
def test_a_damaged_pdf_is_corrupt(data: bytes):
    """What PDFium can't open is corrupt."""
    assert _reason(data) == "corrupt"


@settings(max_examples=60, deadline=None)
@given(st.integers(9, len(VALID) - 1), st.binary(min_size=1, max_size=12))
def test_damage_anywhere_gives_good_blocks_or_a_processing_error(position: int, damage: bytes):
    """No overwritten bytes break the reader."""
    try:
        document = read(VALID[:position] + damage + VALID[position + len(damage) :])
    except ProcessingError:
        return
    assert_well_formed(document)
