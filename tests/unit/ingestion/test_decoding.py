import pytest

from philorag.errors import ProcessingError
from philorag.ingestion.decoding import decode_markup, decode_text


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
def test_unicode_encodings_are_read(codec: str):
    """UTF-8 with and without a byte order mark and UTF-16 with one are read."""
    assert decode_text("λόγος “x”".encode(codec)) == "λόγος “x”"


def test_invalid_utf8_names_the_byte_and_the_way_out():
    """Text in another encoding is refused with the place and the command that converts it."""
    with pytest.raises(ProcessingError) as caught:
        decode_text("line one\nMontr\xe9al".encode("latin-1"))

    assert caught.value.reason == "corrupt"
    assert {key: caught.value.details[key] for key in ("byte", "line")} == {"byte": 14, "line": 2}
    assert "iconv" in caught.value.message


@pytest.mark.parametrize(
    "data",
    [b"a\xed\xa0\x80b", b"\xff\xfea", b"\xff\xfe\x00\xd8a\x00", b"\xef\xbb\xbf\xff"],
    ids=["surrogate", "odd UTF-16", "unpaired UTF-16", "after BOM"],
)
def test_broken_unicode_is_corrupt(data: bytes):
    """An encoded surrogate and half a UTF-16 unit are errors, never replaced."""
    with pytest.raises(ProcessingError) as caught:
        decode_text(data)
    assert caught.value.reason == "corrupt"


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        ('<meta charset="windows-1252">', "cp1252"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=ISO-8859-7">', "iso8859-7"),
        ('<?xml version="1.0" encoding="koi8-r"?>', "koi8-r"),
        ('<meta charset="utf-16">', "utf-8"),
        ("", "utf-8"),
    ],
)
def test_a_declared_character_set_counts(head: str, codec: str):
    """HTML and XML are read in the character set that they declare; UTF-16 can't be declared that way."""
    text = {"iso8859-7": "λογος", "koi8-r": "слово"}.get(codec, "café")
    assert decode_markup((head + text).encode(codec)).endswith(text)


@pytest.mark.parametrize("label", ["utf-7", "unicode_escape", "punycode", "klingon", "rot13"])
def test_what_is_no_character_set_is_refused(label: str):
    """Codecs in which markup could hide, and unknown ones, are not used."""
    with pytest.raises(ProcessingError) as caught:
        decode_markup(f'<meta charset="{label}">text'.encode())
    assert ("corrupt", label) == (caught.value.reason, caught.value.details["charset"])
