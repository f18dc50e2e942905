from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from philorag.embedding.local import LocalEmbedder
from philorag.ingestion.chunking import ChunkLimits, cut
from philorag.ingestion.composition import Composition, compose
from philorag.ingestion.language import language_of
from philorag.ingestion.readers import read_document
from philorag.model import Block, NewChunk

LIMITS = ChunkLimits(size=256, overlap=32)
SMALL = ChunkLimits(size=24, overlap=8)
EXAMPLE_NAMES = sorted(path.name for path in (Path(__file__).parents[3] / "examples" / "library").iterdir())
SENTENCE_MARKS = set(".!?…;·。！？:»”’\"')]")

MIXED = """the being of beings λόγος ὁ ἄνθρωπος ᾧ̃ Wissenschaft cogitationes être 知 之 為 חכמה الحكمة
    👩‍👩‍👧 🦉 ﷺ 514a e.g. J. S. Mill cf."""
WORDS = st.sampled_from(MIXED.split())
SENTENCE_ENDS = st.sampled_from([".", "?", "!", "·", ";", "。", "…”"])
SENTENCES = st.builds(lambda words, end: " ".join(words) + end, st.lists(WORDS, min_size=1, max_size=25), SENTENCE_ENDS)
PROSE = st.lists(SENTENCES, min_size=1, max_size=8).map(" ".join)
VERSE = st.lists(SENTENCES, min_size=1, max_size=8).map("\n".join)
UNBROKEN = st.text(st.sampled_from("aλ知🦉\u0301-ᾳ.;"), min_size=1, max_size=300).map(lambda text: text.strip() or "a")
ANYTHING = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300).map(lambda text: text.strip() or "a")


def blocks_of(text: st.SearchStrategy[str]) -> st.SearchStrategy[Block]:
    return st.builds(
        Block,
        text=text,
        kind=st.sampled_from(["paragraph", "paragraph", "heading", "verse", "note"]),
        layer=st.sampled_from(["main", "main", "note", "apparatus"]),
        section_path=st.sampled_from([(), ("I",), ("I",), ("I", "1")]),
        note_author=st.sampled_from([None, None, "editor"]),
    )


def chars(texts: Sequence[str]) -> list[int]:
    return [-(-len(text) // 4) for text in texts]


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def undetected(_text: str, declared: str | None) -> str | None:
    return declared


def paragraphs(*lengths: int, path: tuple[str, ...] = ()) -> list[Block]:
    """Paragraphs of so many words, in sentences of ten."""
    texts = [" ".join(word(n) for n in range(1, length + 1)) for length in lengths]
    return [Block(text, section_path=path) for text in texts]


def word(n: int) -> str:
    return f"{'W' if n % 10 == 1 else 'w'}{n}{'' if n % 10 else '.'}"


def cut_words(*blocks: Block, size: int = 100, overlap: int = 0) -> list[NewChunk]:
    return cut(compose(blocks), ChunkLimits(size, overlap), words, undetected)


def lengths(chunks: Sequence[NewChunk]) -> list[int]:
    return [chunk.token_count for chunk in chunks]


def assert_rules(composition: Composition, chunks: Sequence[NewChunk], limits: ChunkLimits, count) -> None:
    """What holds of every text, whatever its alphabet, its sections and its length."""
    content = composition.content
    covered = bytearray(len(content))
    for chunk in chunks:
        start, end = chunk.locator.char_start, chunk.locator.char_end
        assert content[start:end] == chunk.text
        assert chunk.text == chunk.text.strip() or not chunk.text.strip()
        covered[start:end] = b"\1" * (end - start)
        inside = [b.block for b in composition.blocks if b.char_start < end and start < b.char_end]
        assert {(chunk.locator.layer, chunk.locator.section_path)} == {(b.layer, b.section_path) for b in inside}
    assert count([chunk.text for chunk in chunks]) == lengths(chunks)
    assert all(length <= limits.size for length in lengths(chunks))
    for placed in composition.blocks:
        if placed.block.kind != "heading":
            bare = [n for n in range(placed.char_start, placed.char_end) if not covered[n]]
            assert not "".join(content[n] for n in bare).strip()
    assert_order_and_overlap(content, composition, chunks, limits, count)


def assert_order_and_overlap(content, composition, chunks, limits, count) -> None:
    begins = {placed.char_start for placed in composition.blocks}
    for before, after in itertools.pairwise(chunks):
        assert before.locator.char_start < after.locator.char_start
        assert before.locator.char_end < after.locator.char_end
        if after.locator.char_start < before.locator.char_end:
            start = after.locator.char_start
            assert count([content[start : before.locator.char_end]])[0] <= limits.overlap
            assert start in begins or content[start - 1] in "\n。！？" or content[:start].rstrip()[-1] in SENTENCE_MARKS


@pytest.fixture(scope="module")
def gpt() -> tiktoken.Encoding:
    """A byte-level encoding without merges that cross spaces: its counts don't add up as words do."""
    ranks = {bytes([n]): n for n in range(256)} | {b".\n": 256, b"\n\n": 257, b" t": 258, b"he": 259}
    return tiktoken.Encoding("tests", pat_str=r"\s+(?!\S)|\S+|\s", mergeable_ranks=ranks, special_tokens={})


@pytest.mark.parametrize("text", [PROSE, VERSE, UNBROKEN, ANYTHING], ids=["prose", "verse", "unbroken", "anything"])
def test_every_rule_holds_for_every_text(text: st.SearchStrategy[str], embedder: LocalEmbedder):
    """Offsets, coverage, lengths, sections, order and overlap are right for the model's own tokens."""

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(blocks_of(text), max_size=8))
    def check(blocks: list[Block]) -> None:
        composition = compose(blocks)
        chunks = cut(composition, SMALL, embedder.count_tokens, undetected)
        assert_rules(composition, chunks, SMALL, embedder.count_tokens)

    check()


def test_every_rule_holds_for_tokens_that_do_not_add_up(gpt: tiktoken.Encoding):
    """A passage keeps its length also where the whole has more tokens than its parts."""

    def count(texts: Sequence[str]) -> list[int]:
        return [len(gpt.encode_ordinary(text)) for text in texts]

    @settings(max_examples=60, deadline=None)
    @given(st.lists(blocks_of(PROSE), max_size=8))
    def check(blocks: list[Block]) -> None:
        composition = compose(blocks)
        limits = ChunkLimits(size=120, overlap=30)
        assert_rules(composition, cut(composition, limits, count, undetected), limits, count)

    check()


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_every_rule_holds_for_the_example_texts(name: str, example_library: Path, embedder: LocalEmbedder):
    """The example library is cut as the rules say."""
    composition = compose(read_document((example_library / name).read_bytes(), name).blocks)
    for limits in (LIMITS, SMALL):
        assert_rules(
            composition, cut(composition, limits, embedder.count_tokens, undetected), limits, embedder.count_tokens
        )


def test_real_books_are_cut_into_full_passages(real_data: Path, embedder: LocalEmbedder):
    """Half of a book's passages are well above half the limit, and hardly one is tiny."""
    books = sorted((real_data / "books").glob("*_*.md"))
    assert books
    for book in books:
        composition = compose(read_document(book.read_bytes(), book.name).blocks)
        chunks = cut(composition, LIMITS, embedder.count_tokens, undetected)
        assert_rules(composition, chunks, LIMITS, embedder.count_tokens)
        assert statistics.median(lengths(chunks)) > 0.7 * LIMITS.size
        assert sum(length < 32 for length in lengths(chunks)) < 0.03 * len(chunks)


@pytest.mark.parametrize(
    "text", ["word ", "x", "A sentence. ", "e\u0301"], ids=["words", "unbroken", "sentences", "accents"]
)
def test_an_endless_line_takes_time_in_proportion(text: str):
    """Forty times as long a line calls the counter some forty times as often, on as many more characters."""

    def work(size: int) -> tuple[int, int]:
        calls = characters = 0

        def counted(texts: Sequence[str]) -> list[int]:
            nonlocal calls, characters
            calls, characters = calls + 1, characters + sum(map(len, texts))
            return chars(texts)

        cut(compose([Block((text * (size // len(text))).strip())]), LIMITS, counted, undetected)
        return calls, characters

    small, large = work(250_000), work(10_000_000 if text == "word " else 1_000_000)
    scale = 40 if text == "word " else 4
    assert large[0] < 1.2 * scale * small[0]
    assert large[1] < 1.2 * scale * small[1]


def test_short_paragraphs_share_a_passage():
    """Whole paragraphs are put together as long as they fit."""
    assert lengths(cut_words(*paragraphs(30, 30, 30, 60))) == [90, 60]


def test_a_paragraph_that_fits_is_not_divided():
    """A paragraph is cut only where it is too long by itself."""
    assert lengths(cut_words(*paragraphs(60, 80, 50))) == [60, 80, 50]


def test_a_long_paragraph_is_cut_at_sentences():
    """Passages of a long paragraph end where its sentences do."""
    assert all(chunk.text.endswith(".") for chunk in cut_words(*paragraphs(500)))


def test_no_tiny_remainder_is_left():
    """What is left for two passages is shared out between them."""
    assert lengths(cut_words(*paragraphs(120))) == [60, 60]
    assert lengths(cut_words(*paragraphs(220))) == [100, 60, 60]


def test_a_heading_stays_with_its_first_paragraph():
    """A paragraph that has no room beside its heading is divided, so that no passage is a heading alone."""
    heading = Block("On being", kind="heading", heading_level=1, section_path=("On being",))
    chunks = cut_words(heading, *paragraphs(100, path=("On being",)))
    assert len(chunks) == 2
    assert chunks[0].text.startswith("On being\n\nW1")
    assert chunks[0].locator.paragraph == 1


def test_a_heading_without_text_is_no_passage():
    """A part's title above its chapters lives on in their section paths."""
    part = Block("Part", kind="heading", heading_level=1, section_path=("Part",))
    chunks = cut_words(part, *paragraphs(10, path=("Part", "Chapter")))
    assert [chunk.locator.section_path for chunk in chunks] == [("Part", "Chapter")]


def test_a_text_of_headings_alone_is_still_found():
    """Where there is nothing but headings they are the passages."""
    assert lengths(cut_words(Block("Title", kind="heading", heading_level=1, section_path=("Title",)))) == [1]


def test_equal_headings_in_a_row_divide():
    """Two letters that are both headed `Letter` never share a passage."""
    letter = [
        Block("Letter", kind="heading", heading_level=1, section_path=("Letter",)),
        Block("Dear", section_path=("Letter",)),
    ]
    assert [chunk.text for chunk in cut_words(*letter, *letter)] == ["Letter\n\nDear"] * 2


def test_overlap_repeats_as_many_sentences_as_fit():
    """The next passage begins with the last sentences of the one before, across paragraphs."""
    blocks = [Block("One two three."), *[Block(f"Short {n} here.") for n in range(6)]]
    first, second, *_ = cut_words(*blocks, size=12, overlap=7)
    assert first.text.endswith("Short 1 here.\n\nShort 2 here.")
    assert second.text.startswith("Short 1 here.\n\nShort 2 here.\n\nShort 3")


def test_no_passage_is_overlap_alone():
    """Every passage says something that the one before doesn't."""
    chunks = cut_words(*paragraphs(95, 98, 7, 100, 3), overlap=20)
    ends = [chunk.locator.char_end for chunk in chunks]
    assert sorted(set(ends)) == ends


@pytest.mark.parametrize(
    "text",
    ["J. S. Mill wrote it.", "See Rep. 514a there.", "So e.g. this one.", "As cf. Hume says.", "St. Augustine asks.",
     "In vol. II it says.", "Prof. Kant lectured."],
)  # fmt: skip
def test_abbreviations_do_not_end_sentences(text: str):
    """An abbreviation's full stop is no place to cut, as long as the sentence fits."""
    filler = "Here stand five short words."
    chunks = cut_words(Block(f"{filler} {filler} {text} {filler}"), size=10)
    assert any(text in chunk.text for chunk in chunks)


def test_greek_sentences_end_at_their_own_marks():
    """The high dot and the question mark that looks like a semicolon end a Greek sentence."""
    text = "πάντες ἄνθρωποι τοῦ εἰδέναι ὀρέγονται φύσει· σημεῖον δ' ἡ τῶν αἰσθήσεων ἀγάπησις; καὶ γὰρ χωρὶς τῆς χρείας."
    chunks = cut_words(Block(text), size=8)
    assert [chunk.text.split()[-1] for chunk in chunks] == ["φύσει·", "ἀγάπησις;", "χρείας."]


def test_verse_is_cut_between_lines():
    """A line of verse, a row of a table and a line of code are never broken when they fit."""
    lines = [f"arma virumque cano troiae {n}" for n in range(20)]
    chunks = cut_words(Block("\n".join(lines), kind="verse"), size=32)
    assert lines == [line for chunk in chunks for line in chunk.text.split("\n")]


def test_letters_keep_their_accents():
    """Where there is no space to cut at, a letter isn't parted from its combining accent."""
    chunks = cut(compose([Block("e\u0301" * 400)]), ChunkLimits(16, 0), chars, undetected)
    assert not any(chunk.text.startswith("\u0301") for chunk in chunks)


def test_the_locator_is_of_the_first_block():
    """Page, paragraph, layer and note author are those of the block that the passage begins in."""
    note = Block("Note text.", kind="note", layer="note", page_index=4, page_label="v", note_author="editor")
    (chunk,) = cut_words(note, Block("More.", kind="note", layer="note", page_index=5, note_author="editor"))
    locator = chunk.locator
    assert (
        locator.page_index, locator.page_label, locator.paragraph, locator.layer, locator.note_author
    ) == (4, "v", 1, "note", "editor")  # fmt: skip


def test_the_language_is_what_most_of_a_passage_declares():
    """A Latin tag in a German text doesn't make the passage Latin."""
    (chunk,) = cut_words(Block("Cogito.", language="la"), Block("Das ist ein längerer Satz.", language="de"))
    assert chunk.language == "de"


def test_equal_texts_have_equal_hashes():
    """The hash is of the text alone, so that an unchanged passage is known wherever it moved."""
    here, there = cut_words(*paragraphs(10), size=50), cut_words(*paragraphs(10, path=("X",)), size=50)
    assert here[0].content_hash == there[0].content_hash


def test_languages_are_detected_for_whole_passages(example_library: Path, embedder: LocalEmbedder):
    """The German example is found to be German throughout."""
    name = "kant-kategorischer-imperativ.md"
    document = read_document((example_library / name).read_bytes(), name)
    chunks = cut(compose(document.blocks), LIMITS, embedder.count_tokens, lambda text, _: language_of(text, None))
    assert {"de"} == {chunk.language for chunk in chunks if chunk.token_count > 40}
