import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.blocks import assert_well_formed, find, texts
from tests.support.files import make_epub, make_zip, make_zip_bomb

from philorag.errors import ProcessingError
from philorag.ingestion.readers.epub import read

ENCRYPTED = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" xmlns:enc="http://www.w3.org/2001/04/xmlenc#">'
    '<enc:EncryptedData><enc:EncryptionMethod Algorithm="{}"/></enc:EncryptedData></encryption>'
)


def _read(chapters: dict[str, str], **options):
    document = read(make_epub(chapters, **options))
    assert_well_formed(document)
    return document


def _reason(data: bytes) -> str:
    with pytest.raises(ProcessingError) as caught:
        read(data)
    return caught.value.reason


def test_chapters_come_in_the_order_of_the_spine():
    """The reading order counts, not the order of names."""
    assert texts(_read({"z.xhtml": "<p>one</p>", "a.xhtml": "<p>two</p>"})) == ["one", "two"]


def test_metadata_tells_authors_from_translators():
    """Only creators without another role are authors."""
    document = _read(
        {"a.xhtml": "<p>x</p>"},
        title="Politics",
        metadata='<dc:creator id="c1">Aristotle</dc:creator><meta refines="#c1" property="role">aut</meta>'
        '<dc:creator opf:role="trl">B. Jowett</dc:creator><dc:contributor id="e">An Editor</dc:contributor>'
        '<meta refines="#e" property="role">edt</meta><dc:date>1885-01-01</dc:date>'
        "<dc:language>en-GB</dc:language>"
        "<dc:identifier>urn:isbn:1</dc:identifier>",
    )
    assert (
        document.title, document.authors, document.publication_date, document.language
    ) == ("Politics", ("Aristotle",), "1885-01-01", "en-GB")  # fmt: skip
    assert document.metadata == {"translators": ["B. Jowett"], "editors": ["An Editor"], "identifier": "urn:isbn:1"}


@pytest.mark.parametrize(
    "dates",
    [
        "<dc:date>2018-05-22T00:00:00Z</dc:date>",
        '<dc:date>2018-05-22</dc:date><meta property="dcterms:modified">2018-05-22T10:00:00Z</meta>',
    ],
)
def test_the_date_of_the_file_is_not_that_of_the_work(dates: str):
    """A date with a time of day, or that of the last change, says when the e-book was made and no more."""
    document = _read({"a.xhtml": "<p>x</p>"}, metadata=dates)
    assert document.publication_date is None
    assert document.metadata["file_date"] == "2018-05-22"


def test_notes_are_linked_across_files():
    """A mark in a chapter finds its note in another file, under an anchor that is unique in the book."""
    mark = '<p>text{}<a epub:type="noteref" href="notes.xhtml#{}">1</a> on</p>'
    note = '<li id="{}" epub:type="endnote"><p>{} <a href="{}.xhtml" epub:type="backlink">↩</a></p></li>'
    document = _read(
        {
            "c1.xhtml": "<h1>One</h1>" + mark.format("A", "n1"),
            "c2.xhtml": "<h1>Two</h1>" + mark.format("B", "n2"),
            "notes.xhtml": f"<section epub:type='endnotes'><h1>Notes</h1><ol>{note.format('n1', 'First.', 'c1')}"
            f"{note.format('n2', 'Second.', 'c2')}</ol></section>",
        }
    )
    assert find(document, "textA").marks == (("1", 5),)
    assert find(document, "textB").marks == (("1~2", 5),)
    assert [(block.text, block.anchor, block.section_path) for block in document.blocks if block.layer == "note"] == [
        ("First.", "1", ("One",)),
        ("Second.", "1~2", ("Two",)),
    ]
    assert texts(document, "heading") == ["One", "Two"]


@pytest.mark.parametrize("kind", ["nav", "ncx"])
def test_navigation_names_chapters_without_headings(kind: str):
    """Where a chapter has no heading, the table of contents gives its section."""
    inner = '<ol><li><a href="b.xhtml">Chapter</a></li></ol>'
    nav = f'<nav epub:type="toc"><ol><li><a href="a.xhtml">Part</a>{inner}</li></ol></nav>'
    point = '<navPoint><navLabel><text>{}</text></navLabel><content src="{}"/>{}</navPoint>'
    points = point.format("Part", "a.xhtml", point.format("Chapter", "b.xhtml", ""))
    ncx = f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>'
    document = _read({"a.xhtml": "<p>one</p>", "b.xhtml": "<p>two</p>"}, **{kind: nav if kind == "nav" else ncx})
    assert [block.section_path for block in document.blocks] == [("Part",), ("Part", "Chapter")]


def test_the_page_list_names_pages():
    """Labels come from the page list where the markers have none."""
    nav = '<nav epub:type="page-list"><ol><li><a href="a.xhtml#p7">7</a></li></ol></nav>'
    document = _read(
        {"a.xhtml": '<p id="p7">one</p><span id="p8" epub:type="pagebreak" title="8"/><p>two</p>'}, nav=nav
    )
    assert [(block.page_index, block.page_label, block.page_label_confidence) for block in document.blocks] == [
        (0, "7", 1.0),
        (1, "8", 1.0),
    ]


def test_boilerplate_is_left_out_but_a_preface_is_not():
    """Title page, colophon and contents are skipped, front matter with text is kept."""
    document = _read(
        {
            "t.xhtml": '<section epub:type="titlepage"><h1>Title</h1></section>',
            "p.xhtml": '<section epub:type="preface"><h2>Preface</h2><p>Words.</p></section>',
            "c.xhtml": "<p>Contents</p>",
            "k.xhtml": '<section epub:type="colophon"><p>Set in X.</p></section>',
        },
        guide='<guide><reference type="toc" href="c.xhtml"/></guide>',
    )
    assert texts(document) == ["Preface", "Words."]


def test_named_entities_of_xhtml_are_read():
    """`&nbsp;` and `&eacute;` need no DTD."""
    assert texts(_read({"a.xhtml": "<p>caf&eacute;&nbsp;x</p>"})) == ["café x"]


def test_a_zip_bomb_is_too_large():
    """An archive that would unpack beyond measure isn't unpacked."""
    assert _reason(make_zip_bomb()) == "too_large"


def test_a_manifest_that_leaves_the_archive_is_corrupt():
    """`../` beyond the root is refused."""
    item = '<item id="x" href="../../../etc/passwd" media-type="text/css"/>'
    assert _reason(make_epub({"a.xhtml": "<p>x</p>"}, manifest=item)) == "corrupt"


def test_entries_with_dangerous_names_are_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing is extracted, so a name like `../evil` has no effect."""
    monkeypatch.chdir(tmp_path)
    assert texts(_read({"a.xhtml": "<p>x</p>"}, extra={"../evil.txt": "e", "/abs.txt": "e"})) == ["x"]
    assert list(tmp_path.iterdir()) == []


def test_external_entities_are_not_resolved():
    """A package file can't read files of this machine."""
    opf = (
        '<!DOCTYPE p [<!ENTITY e SYSTEM "file:///etc/passwd">]><package xmlns="http://www.idpf.org/2007/opf"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>T&e;</dc:title></metadata><manifest><item id="a" '
        'href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>'
    )
    container = '<c><rootfile full-path="o.opf"/></c>'
    document = read(make_zip({"META-INF/container.xml": container, "o.opf": opf, "a.xhtml": "<p>x</p>"}))
    assert "root:" not in (document.title or "")


@pytest.mark.parametrize(
    ("algorithm", "protected"),
    [("http://www.w3.org/2001/04/xmlenc#aes128-cbc", True), ("http://www.idpf.org/2008/embedding", False)],
)
def test_drm_is_encrypted_but_obfuscated_fonts_are_not(algorithm: str, protected: bool):
    """Only encryption of contents stops the reading."""
    data = make_epub({"a.xhtml": "<p>x</p>"}, extra={"META-INF/encryption.xml": ENCRYPTED.format(algorithm)})
    assert _reason(data) == "encrypted" if protected else read(data).blocks


VALID = make_epub({"a.xhtml": "<h1>A</h1><p>text</p>", "b.xhtml": "<p>more</p>"})


@pytest.mark.parametrize(
    "data",
    [
        VALID[: len(VALID) // 2],
        make_zip({"mimetype": "application/epub+zip"}),
        make_zip({"META-INF/container.xml": "not xml"}),
        make_zip({"META-INF/container.xml": "<container/>"}),
        make_epub({}),
    ],
    ids=["cut off", "no container", "no xml", "no package", "no spine"],
)
def test_damaged_books_are_corrupt(data: bytes):
    """Each missing part is an error that says so."""
    assert _reason(data) == "corrupt"


def test_a_book_of_images_is_empty():
    """Chapters without any text make no document."""
    assert _reason(make_epub({"a.xhtml": '<img src="x.png"/>'})) == "empty"


def test_a_chapter_in_a_broken_encoding_is_corrupt():
    """Nothing is replaced silently inside a book either."""
    assert _reason(make_epub({"a.xhtml": b"<p>\xed\xa0\x80</p>"})) == "corrupt"


@settings(max_examples=60)
@given(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=12))
def test_damage_anywhere_gives_good_blocks_or_a_processing_error(position: int, damage: bytes):
    """No overwritten bytes break the reader."""
    try:
        document = read(VALID[:position] + damage + VALID[position + len(damage) :])
    except ProcessingError:
        return
    assert_well_formed(document)


REAL = os.environ.get("PHILORAG_TEST_DATA", "")


@pytest.mark.skipif(not Path(REAL, "epub").is_dir(), reason="PHILORAG_TEST_DATA names no folder with epub/ in it")
def test_real_books_have_all_their_notes():
    """In published books every mark has a note and every note a mark."""
    for path in Path(REAL, "epub").glob("*.epub"):
        document = read(path.read_bytes())
        assert_well_formed(document)
        marks = {label for block in document.blocks for label, _ in block.marks}
        assert marks == {block.anchor for block in document.blocks if block.layer == "note"}
        assert document.authors
        assert len(marks) > 20
