import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.blocks import assert_well_formed, find, texts

from philorag.errors import ProcessingError
from philorag.ingestion.readers.html import read


def _read(body: str, head: str = "", attributes: str = ""):
    document = read(f"<!doctype html><html {attributes}><head>{head}</head><body>{body}</body></html>".encode())
    assert_well_formed(document)
    return document


def test_boilerplate_is_left_out():
    """Navigation, margins, scripts and hidden elements are no text of the page."""
    document = _read(
        "<header>Site</header><nav>Menu</nav><div><p>Text.</p><script>x</script><p hidden>h</p>"
        "<p style='display: none'>h</p></div><aside>Ad</aside><footer>Imprint</footer>"
    )
    assert texts(document) == ["Text."]


def test_main_content_is_preferred():
    """What stands outside `main` isn't read."""
    assert texts(_read("<div>Out</div><main><p>In.</p></main><p>Out</p>")) == ["In."]


def test_headings_paragraphs_and_kinds():
    """Headings open sections; quotations, items, tables, code and verse are told apart."""
    document = _read(
        "<h1>A</h1><p>one <b>two</b>\n three</p><blockquote><p>q</p></blockquote><h2>B</h2><ul><li>i<li>j</ul>"
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table><pre>x\n  y</pre>"
        "<p class='poem'>l1<br>\n l2</p>loose"
    )
    assert [(block.kind, block.text) for block in document.blocks] == [
        ("heading", "A"), ("paragraph", "one two three"), ("quotation", "q"), ("heading", "B"), ("list_item", "i"),
        ("list_item", "j"), ("table", "a | b\n1 | 2"), ("code", "x\n  y"), ("verse", "l1\nl2"), ("paragraph", "loose"),
    ]  # fmt: skip
    assert document.blocks[-1].section_path == ("A", "B")


def test_grouped_headings_are_one():
    """A number and a title that belong together are one heading."""
    assert texts(_read("<hgroup> <h2>IV</h2> <p>Of Doubt</p> </hgroup><p>x"), "heading") == ["IV: Of Doubt"]


def test_layout_tables_are_read_as_text():
    """A table around headings and paragraphs is no table."""
    assert [block.kind for block in _read("<table><tr><td><p>a</p><p>b</p></td></tr></table>").blocks] == [
        "paragraph",
        "paragraph",
    ]


NOTES = {
    "doc-footnote": (
        '<a role="doc-noteref" href="#n">1</a>',
        '<aside id="n" role="doc-footnote"><p>1. Note.</p></aside>',
    ),
    "epub:type": (
        '<a epub:type="noteref" href="#n">1</a>',
        '<li id="n" epub:type="endnote"><p>Note. <a href="#r" epub:type="backlink">x</a></p></li>',
    ),
    "section": (
        '<sup id="r"><a href="#n">1</a></sup>',
        '<section class="footnotes"><h2>Notes</h2><ol><li id="n">Note. <a href="#r">↩</a></li></ol></section>',
    ),
    "old page": ('<a name="r" href="#n">[1]</a>', '<p><a name="n" href="#r">[1]</a> Note.</p>'),
    "inner id": ('<a href="#n"><sup>1</sup></a>', '<div class="note"><p><span id="n">1)</span> Note.</p></div>'),
}


@pytest.mark.parametrize(("mark", "note"), NOTES.values(), ids=NOTES)
def test_notes_are_found_in_every_common_form(mark: str, note: str):
    """A note has its label as anchor; neither marks nor back-links nor labels are in the text."""
    document = _read(f"<h1>H</h1><p>All men{mark} desire.</p>{note}")
    main = find(document, "All men")
    assert (main.text, main.marks) == ("All men desire.", (("1", 7),))
    assert [(block.text, block.anchor, block.section_path) for block in document.blocks if block.layer == "note"] == [
        ("Note.", "1", ("H",))
    ]
    assert texts(document, "heading") == ["H"]


def test_links_that_only_look_like_marks_stay_text():
    """A table of contents full of numbers refers to no notes."""
    document = _read(
        '<p><a href="#c1">1</a> <a href="#c2">2</a></p><div id="c1"><h2>One</h2><p>x</p></div><p id="c2">Two'
    )
    assert document.blocks[0].text == "1 2"
    assert all(block.layer == "main" for block in document.blocks)


def test_equal_labels_get_different_anchors():
    """Two notes called * are told apart."""
    document = _read(
        '<p>a<a role="doc-noteref" href="#x">*</a> b<a role="doc-noteref" href="#y">*</a></p>'
        '<p id="x" class="footnote">* X</p><p id="y" class="footnote">* Y</p>'
    )
    assert [(block.text, block.anchor) for block in document.blocks[1:]] == [("X", "*"), ("Y", "*~2")]
    assert document.blocks[0].marks == (("*", 1), ("*~2", 3))


def test_language_is_inherited():
    """The nearest `lang` above a block is its language."""
    document = _read("<p>a</p><div lang='la'><p>b</p></div><p>c</p>", attributes="lang='en'")
    assert [block.language for block in document.blocks] == ["en", "la", "en"]


def test_page_breaks_set_index_and_label():
    """Markers carry the printed label; a word that a page cuts stays whole."""
    document = _read(
        '<p>before</p><span epub:type="pagebreak" title="xii"></span><p>one mid<span role="doc-pagebreak" '
        'aria-label="Page 13" id="p13"></span>dle two <span role="doc-pagebreak" id="page_14"></span>three</p>'
    )
    assert [(block.text, block.page_index, block.page_label) for block in document.blocks] == [
        ("before", None, None),
        ("one middle", 0, "xii"),
        ("two", 1, "13"),
        ("three", 2, "14"),
    ]


def test_a_page_break_within_a_heading_does_not_cut_it():
    """The heading stands on the page where it begins, what follows on the next."""
    document = _read('<h2>Of Be<span role="doc-pagebreak" title="2"></span>ing and Time</h2><p>x</p>')
    assert [(block.text, block.page_label) for block in document.blocks] == [("Of Being and Time", None), ("x", "2")]


def test_metadata_is_taken_from_the_head():
    """Citation and Dublin Core tags come before the page's title."""
    head = (
        "<title>Site | Page</title><meta name='citation_title' content='On Being'>"
        "<meta name='DC.creator' content='A. B.'>"
        "<meta name='citation_author' content='A. B.'><meta name='citation_author' content='C. D.'>"
        "<meta name='citation_publication_date' content='2011/05/03'><meta name='citation_doi' content='10.1/x'>"
    )
    document = _read("<p>x", head, "lang='de'")
    assert (
        document.title, document.authors, document.publication_date, document.language
    ) == ("On Being", ("A. B.", "C. D."), "2011-05-03", "de")  # fmt: skip
    assert document.metadata == {"citation_doi": "10.1/x"}


def test_self_closed_elements_of_xhtml_stay_empty():
    """`<a id="x"/>` in XHTML doesn't swallow what follows."""
    html = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">'
    markup = html + b'<body><p><a id="x"/>one</p><p hidden="hidden"/><p>two</p></body></html>'
    assert texts(read(markup)) == ["one", "two"]


@pytest.mark.timeout(20)
def test_deep_nesting_is_no_trouble():
    """Neither recursion nor quadratic time on 50,000 open elements."""
    assert texts(read(b"<html><body>" + b"<div>" * 50_000 + b"deep")) == ["deep"]


def test_a_page_without_text_is_empty():
    """Scripts alone are no document."""
    with pytest.raises(ProcessingError) as caught:
        _read("<script>x()</script>")
    assert caught.value.reason == "empty"


PIECES = st.sampled_from(
    "<p> <div> </div> <h2> <table> <tr> <td> <li> <a|href=#n>1</a> <li|id=n> <span|epub:type=pagebreak|title=3></span> "
    "<aside|role=doc-footnote|id=n> <br> <pre> <q> <hgroup> </hgroup> <blockquote> </table> <p|class=poem> "
    "<!-- <![CDATA[ <a|role=doc-noteref|href=#n>*</a> <ol> </p> <sup> <math> <svg> &#xD800; &#0; &shy;".replace(
        "|", "\v"
    ).split(" ")
).map(lambda piece: piece.replace("\v", " "))


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40))
def test_any_markup_gives_good_blocks_or_a_processing_error(parts: list[str]):
    """No HTML breaks the reader."""
    try:
        document = read("".join(parts).encode("utf-8", "surrogatepass"))
    except ProcessingError:
        return
    assert_well_formed(document)


def test_cdata_is_text_and_takes_linear_time():
    """A CDATA section of XHTML is its text, and thousands of unclosed ones are quickly over."""
    html = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>'
    assert texts(read(html + b"a <![CDATA[< b]]></p></body></html>")) == ["a < b"]
    started = time.perf_counter()
    with contextlib.suppress(ProcessingError):
        read(html + b"<![CDATA[" * 50_000)
    assert time.perf_counter() - started < 3
