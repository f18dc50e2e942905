import contextlib
import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.files import make_epub, make_pdf, make_zip

from philorag.errors import ProcessingError
from philorag.ingestion.detection import MEDIA_TYPES, detect_format


@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.epub", "noname"])
def test_content_decides_over_the_name(name: str):
    """A PDF named .txt is a PDF, and an EPUB named .pdf an EPUB."""
    assert detect_format(make_pdf([["text"]]), name) == "pdf"
    assert detect_format(make_epub({"a.xhtml": "<p>x</p>"}), name) == "epub"
    assert detect_format(b"\xef\xbb\xbf\n<!-- c --><!DOCTYPE html><p>x", name) == "html"


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"junk before %PDF-1.4", "a", "pdf"),
        (b"Plain words.", "a.txt", "plain"),
        (b"Plain words.", "a.md", "markdown"),
        (b"Plain words.", "a", "plain"),
        (b"# Head\n\nA [link](https://x.org) here.", "a.txt", "markdown"),
        (b"---\ntitle: T\n---\nText", "a", "markdown"),
        (b"# one sign only", "a.txt", "plain"),
        (b"<p>Fragment</p>", "a", "html"),
        (b"<div>raw</div>\n\ntext", "a.md", "markdown"),
        (b"a < b and b > c", "a.txt", "plain"),
        ("<html><p>x".encode("utf-16"), "a", "html"),
        (b'<?xml version="1.0"?><html xmlns="x"/>', "a", "html"),
        (b"MZ is how this text begins", "a.txt", "plain"),
        ("λόγος".encode("utf-16"), "a.txt", "plain"),
        (b"PK\x03\x04 broken", "a.epub", "epub"),
    ],
)
def test_formats_are_known(data: bytes, name: str, expected: str):
    """Each accepted format is known by its signs; only text needs the extension."""
    assert expected == detect_format(data, name)


@pytest.mark.parametrize(
    ("data", "seems"),
    [
        (b"\x89PNG\r\n\x1a\n\x00", "PNG"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"MZ\x90\x00\x03", "executable"),
        (b"\x7fELF\x02", "executable"),
        (b"{\\rtf1 x}", "RTF"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Office"),
        (b"text with \x00 in it", "NUL"),
        (b"\x01\x02\x03\x04\x05" * 9, "binary"),
        (b"\x1f\x8b\x08", "gzip"),
        (b'<?xml version="1.0"?><TEI xmlns="t"><text/></TEI>', "TEI"),
        (make_zip({"a.txt": "x"}), "zip"),
        (make_zip({"[Content_Types].xml": "", "word/document.xml": ""}), "Word"),
        (make_zip({"mimetype": "application/vnd.oasis.opendocument.text"}), "OpenDocument"),
        (b"PK\x03\x04 broken", "damaged zip"),
    ],
)
def test_other_formats_are_named_and_refused(data: bytes, seems: str):
    """What can't be read is refused with what it seems to be and what is accepted."""
    with pytest.raises(ProcessingError) as caught:
        detect_format(data, "a.txt")
    assert caught.value.reason == "unsupported_format"
    assert seems in caught.value.message
    assert "PDF, EPUB, HTML, Markdown and plain text" in caught.value.message


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"\xff\xfe \x00\n\x00"])
def test_nothing_but_white_space_is_empty(data: bytes):
    """A file without any text is empty, whatever its name."""
    with pytest.raises(ProcessingError) as caught:
        detect_format(data, "a.pdf")
    assert caught.value.reason == "empty"


@pytest.mark.timeout(5)
@pytest.mark.parametrize("unit", [b"[", b"**a", b"| ---", b"<!--", b"---\na:\n"])
def test_detection_is_quick_on_hostile_text(unit: bytes):
    """Repeated beginnings of markup don't make it slow."""
    detect_format(b"x\n" + unit * (1_000_000 // len(unit)), "a")


@given(st.binary(max_size=200), st.sampled_from(["", "%PDF-", "PK\x03\x04", "<html", "---\n"]), st.text(max_size=9))
def test_only_processing_errors_come_out(data: bytes, head: str, name: str):
    """Any bytes under any name have a format or a `ProcessingError`."""
    with contextlib.suppress(ProcessingError):
        assert detect_format(head.encode() + data, name) in MEDIA_TYPES


def test_an_epub_with_only_a_container_is_one():
    """Some tools forget the `mimetype` entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("META-INF/container.xml", "<container/>")
    assert detect_format(buffer.getvalue(), "a.zip") == "epub"
