import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.blocks import assert_well_formed, find, texts

from philorag.errors import ProcessingError
from philorag.ingestion.readers.markdown import read


def _read(text: str):
    document = read(text.encode())
    assert_well_formed(document)
    return document


def test_frontmatter_describes_the_document():
    """Title, authors, date and language are taken out; the rest is metadata."""
    document = _read(
        "---\ntitle: On  Liberty\nauthors: [Mill, {name: Taylor}]\ndate: 1859-02-01\nlang: en\ntags: [a, b]\n---\nText."
    )
    assert (
        document.title, document.authors, document.publication_date, document.language
    ) == ("On Liberty", ("Mill", "Taylor"), "1859-02-01", "en")  # fmt: skip
    assert document.metadata == {"tags": ["a", "b"]}
    assert texts(document) == ["Text."]


@pytest.mark.parametrize(
    ("yaml", "line"),
    [("title: 'open\nx: 1", 4), ("a: b: c", 2), ("ok: 1\n\tx: 2", 3), ("x: !!python/object:os.system {}", 2)],
)
def test_malformed_frontmatter_names_the_line(yaml: str, line: int):
    """YAML that can't be read, or would make objects, is `corrupt` with its line."""
    with pytest.raises(ProcessingError) as caught:
        _read(f"---\n{yaml}\n---\nText")
    assert ("corrupt", line) == (caught.value.reason, caught.value.details["line"])


def test_multiplying_aliases_are_refused():
    """A few lines of YAML can't grow into gigabytes."""
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)
    )
    with pytest.raises(ProcessingError) as caught:
        _read(f"---\n{bomb}\n---\nText")
    assert caught.value.reason == "too_large"


def test_a_rule_is_no_frontmatter():
    """Dashes around prose are thematic breaks."""
    assert "More." in texts(_read("---\n\nProse here.\n\n---\n\nMore."))


def test_headings_give_the_section_path():
    """A paragraph is below the headings above it, outermost first."""
    document = _read("# A\n\n## B\n\none\n\n## C\n\ntwo")
    assert find(document, "one").section_path == ("A", "B")
    assert find(document, "two").section_path == ("A", "C")
    assert document.title == "A"


def test_inline_markup_becomes_plain_text():
    """Texts of links and images stay; signs, tags and comments go."""
    document = _read(
        "*Being* and **time**, [a link](http://x), ![alt *text*](i.png), `code`, <b>bold</b><!-- c -->, &amp; x\\*"
    )
    assert texts(document) == ["Being and time, a link, alt text, code, bold, & x*"]


def test_footnotes_are_notes_and_their_marks_leave_no_text():
    """The mark's place is kept as an offset, the note under its label."""
    document = _read("All men[^a] desire^[to wish] it[^a].\n\n[^a]: Both *sexes*.\n\n    Truly. —Ed.")
    main = document.blocks[0]
    assert main.text == "All men desire it."
    assert main.marks == (("a", 7), ("2", 14), ("a", 17))
    notes = [(block.anchor, block.text, block.note_author) for block in document.blocks if block.layer == "note"]
    assert notes == [("a", "Both sexes.", None), ("a", "Truly. —Ed.", "editor"), ("2", "to wish", None)]


def test_a_note_belongs_to_the_section_that_refers_to_it():
    """Footnotes defined at the end are found under their passage."""
    document = _read("# A\n\ntext[^1]\n\n# B\n\nmore\n\n[^1]: note")
    assert find(document, "note").section_path == ("A",)


def test_kinds_of_blocks():
    """Quotations, items, tables, code and verse are told apart."""
    document = _read(
        "> quoted\n\n- item\n\n3. third\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "```\nx = 1\n  y\n```\n\nline one\\\nline two"
    )
    assert {kind: texts(document, kind) for kind in ("quotation", "list_item", "table", "code", "verse")} == {
        "quotation": ["quoted"],
        "list_item": ["item", "3. third"],
        "table": ["a | b\n1 | 2"],
        "code": ["x = 1\n  y"],
        "verse": ["line one\nline two"],
    }


def test_raw_html_is_read_as_text():
    """Blocks of HTML give their text, scripts nothing."""
    assert texts(_read("<div><p>inside</p><script>x()</script></div>\n\nafter <script>y()</script>")) == [
        "inside",
        "after",
    ]


def test_no_text_is_empty():
    """Frontmatter alone is no document."""
    with pytest.raises(ProcessingError) as caught:
        _read("---\ntitle: x\n---\n")
    assert caught.value.reason == "empty"


PIECES = st.sampled_from(
    [
        "# ",
        "> ",
        "- ",
        "[^1]",
        "[^1]: ",
        "\n\n",
        "\n",
        "    ",
        "|a|b|\n|-|-|\n",
        "```\n",
        "<div>",
        "*",
        "![",
        "](x)",
        "---\n",
        "a: &b *b\n",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=30))
def test_any_markdown_gives_good_blocks_or_a_processing_error(parts: list[str]):
    """No Markdown breaks the reader."""
    try:
        document = read("".join(parts).encode("utf-8", "surrogatepass"))
    except ProcessingError:
        return
    assert_well_formed(document)
