from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from philorag.ingestion.composition import compose
from philorag.model import Block

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
BLOCKS = st.builds(
    Block,
    text=TEXTS,
    kind=st.sampled_from(["heading", "paragraph", "verse", "note"]),
    layer=st.sampled_from(["main", "note", "apparatus"]),
    section_path=st.sampled_from([(), ("I",), ("I", "1"), ("II",)]),
)


def numbers(*blocks: Block) -> list[int]:
    return [placed.paragraph for placed in compose(blocks).blocks]


def heading(text: str, *above: str) -> Block:
    return Block(text, kind="heading", heading_level=1, section_path=(*above, text))


@given(st.lists(BLOCKS, max_size=20))
def test_every_block_stands_at_its_offsets(blocks: list[Block]):
    """The stored text between a block's offsets is the block's text, and between blocks there is a blank line."""
    composition = compose(blocks)
    assert sorted(blocks, key=repr) == sorted((placed.block for placed in composition.blocks), key=repr)
    position = 0
    for placed in composition.blocks:
        assert placed.char_start == position
        assert composition.content[placed.char_start : placed.char_end] == placed.block.text
        position = placed.char_end + 2
    assert "\n\n".join(placed.block.text for placed in composition.blocks) == composition.content


@given(st.lists(BLOCKS, max_size=20))
def test_layers_follow_each_other(blocks: list[Block]):
    """The main text comes first, then the notes, then the apparatus, each in the order of the source."""
    ordered = [placed.block for placed in compose(blocks).blocks]
    assert [b for layer in ("main", "note", "apparatus") for b in blocks if b.layer == layer] == ordered


def test_no_blocks_make_an_empty_text():
    """A source without blocks is an empty text."""
    assert compose([]).content == ""


def test_paragraphs_are_numbered_within_their_section():
    """Numbers begin at 1 in each section and go on where a section does."""
    a, b = ("A",), ("A", "B")
    blocks = (Block("1", section_path=a), Block("2", section_path=a), Block("1", section_path=b))
    assert numbers(*blocks, Block("3", section_path=a)) == [1, 2, 1, 3]


def test_a_heading_has_the_number_of_the_paragraph_after_it():
    """A heading is no paragraph: it shares the number of the next one."""
    assert numbers(heading("A"), Block("1", section_path=("A",)), Block("2", section_path=("A",))) == [1, 1, 2]


def test_a_repeated_heading_begins_a_section_anew():
    """Two letters that are both headed `Letter` each have a first paragraph."""
    letter = (heading("Letter"), Block("Dear", section_path=("Letter",)))
    assert numbers(*letter, *letter) == [1, 1, 1, 1]


def test_notes_are_numbered_apart_from_the_text():
    """A section's notes have numbers of their own."""
    assert numbers(Block("a"), Block("n", kind="note", layer="note"), Block("b")) == [1, 2, 1]
