import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.blocks import assert_well_formed, find, texts

from philorag.errors import ProcessingError
from philorag.ingestion.readers.plain import read

WRAPPED = """\
All men by nature desire to know. An indication of this is the
delight we take in our senses; for even apart from their usefulness
they are loved for themselves; and above all others the sense of
sight."""


def _read(text: str):
    document = read(text.encode())
    assert_well_formed(document)
    return document


def test_paragraphs_are_split_at_blank_lines_and_rejoined():
    """Hard-wrapped lines become one paragraph, blank lines end it."""
    document = _read(WRAPPED + "\n\n" + WRAPPED)
    assert [WRAPPED.replace("\n", " ")] * 2 == texts(document)
    assert document.title is None


@pytest.mark.parametrize(
    ("broken", "joined"),
    [
        ("an argu-\nment about", "an argument about"),
        ("The self-evident is self-\nevident.", "The self-evident is self-evident."),
        ("A well known thing is well-\nknown here.", "A well known thing is well-known here."),
        ("by Merleau-\nPonty himself", "by Merleau-Ponty himself"),
        ("in 1914-\n1918 there", "in 1914- 1918 there"),
    ],
)
def test_words_are_rejoined_only_where_that_is_safe(broken: str, joined: str):
    """A hyphen at a line's end stays when the document shows that it belongs to the word."""
    assert [joined] == texts(_read(broken))


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("CHAPTER IV.", 2),
        ("Book II: Of the Passions", 1),
        ("OF THE ORIGIN OF IDEAS", 2),
        ("XIV", 2),
        ("2.1 Substance and Accident", 3),
        ("He said: 1914 was the year.", None),
        ("I agree.", None),
        ("12 men came, and they sat down.", None),
        ("Book reviews are never read by authors", None),
    ],
)
def test_headings_are_recognised_with_caution(line: str, level: int | None):
    """Numbered, capital and chapter lines are headings; in doubt a line is a paragraph."""
    document = _read(f"{WRAPPED}\n\n{line}\n\n{WRAPPED}")
    assert level == find(document, line).heading_level


def test_underlined_headings_set_the_section_path():
    """`===` is a first level, `---` a second, and what follows is inside them."""
    document = _read(f"Title\n=====\n\nPart\n----\n{WRAPPED}")
    assert document.title == "Title"
    assert document.blocks[-1].section_path == ("Title", "Part")


def test_the_first_line_is_the_title_if_it_looks_like_one():
    """A short first line without a full stop is the title."""
    assert _read(f"On Liberty\n\n{WRAPPED}").title == "On Liberty"


def test_verse_keeps_its_lines():
    """Short irregular lines are verse, not a paragraph."""
    verse = "Sing, goddess, the anger\nof Peleus' son Achilleus\nand its devastation,\nwhich put pains\nthousandfold"
    assert [verse] == texts(_read(f"{WRAPPED}\n\n{verse}\n\n{WRAPPED}"), "verse")


def test_lists_and_quotations_have_their_kinds():
    """Bulleted lines are items, indented paragraphs quotations."""
    quote = "\n".join("      " + line for line in WRAPPED.split("\n"))
    document = _read(f"{WRAPPED}\n\n- one\n- two\n  goes on\n\n{quote}")
    assert texts(document, "list_item") == ["- one", "- two goes on"]
    assert [WRAPPED.replace("\n", " ")] == texts(document, "quotation")


@pytest.mark.parametrize("mark", ["[1]", "¹"])
@pytest.mark.parametrize("start", ["[1]", "1."])
def test_notes_at_the_end_leave_the_text(mark: str, start: str):
    """Trailing numbered paragraphs whose marks occur in the text are notes."""
    document = _read(f"All men{mark} desire to know.\n\nNotes\n\n{start} Both\nsexes.")
    main, note = document.blocks
    assert (main.text, main.marks) == ("All men desire to know.", (("1", 7),))
    assert (note.text, note.layer, note.anchor) == ("Both sexes.", "note", "1")


def test_numbered_paragraphs_without_marks_stay_text():
    """A list at the end of a text is not taken for notes."""
    assert all(block.layer == "main" for block in _read(f"{WRAPPED}\n\n1. One thing.\n\n2. Another.").blocks)


def test_form_feeds_count_pages():
    """Text extractors put a form feed between pages."""
    assert [block.page_index for block in _read("one page.\fanother page.").blocks] == [0, 1]


@pytest.mark.timeout(20)
def test_a_line_of_ten_megabytes_is_one_quick_paragraph():
    """Length alone is no trouble."""
    started = time.perf_counter()
    document = read(b"All men by nature desire to know. " * 300_000)
    assert len(document.blocks) == 1
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("data", [b"\x0c\x0c", b"\n\xc2\xad\n", b"-----\n"])
def test_a_file_without_text_is_empty(data: bytes):
    """Rules and invisible characters are no text."""
    with pytest.raises(ProcessingError) as caught:
        read(data)
    assert caught.value.reason == "empty"


PIECES = st.sampled_from(
    ["[1] ", "1. ", "\n\n", "\n", "===\n", "- ", "word ", "A-\nb", "\f", "    ", "* ", "¹", "II.\n", "> "]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=30))
def test_any_text_gives_good_blocks_or_a_processing_error(parts: list[str]):
    """No text breaks the reader."""
    try:
        document = read("".join(parts).encode("utf-8", "surrogatepass"))
    except ProcessingError:
        return
    assert_well_formed(document)
