"""Cutting a composed text into passages that respect sections, paragraphs and sentences, in that order.

Lengths are tokens of the model that embeds. A passage never crosses a section or a layer; within one, it may repeat the
last sentences of the passage before.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from philorag.model import Locator, NewChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from philorag.ingestion.composition import Composition, PlacedBlock

__all__ = ["ChunkLimits", "Span", "cut"]

# A sentence ends at its mark, with what closes it, before white space. "Rep. 514a" and "e.g. this" go on, while Greek
# sentences begin in lower case; `·` and `;` end a Greek one and divide a long one elsewhere.
_SENTENCE_END = re.compile(r"""(?:(?<=[.!?…])[»”’"')\]]*\s+(?=[^\sa-z0-9]))|(?:(?<=[;·;])[»”’"')\]]*\s+(?=\S))""")


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How long a passage may be, and how much of the one before it may repeat; both in tokens."""

    size: int
    overlap: int


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the text that is packed whole: a paragraph, a sentence or, where one is too long, a part of it."""

    char_start: int
    char_end: int
    tokens: int
    block: PlacedBlock


def cut(
    composition: Composition,
    limits: ChunkLimits,
    count: Callable[[Sequence[str]], list[int]],
    language_of: Callable[[str, str | None], str | None],
) -> list[NewChunk]:
    """The passages of a text, in order.

    *count* gives the tokens of each of some texts; *language_of* a passage's language from its text and what the
    source declared.
    """
    passages: list[tuple[Span, Span]] = []
    for section in _sections(composition.blocks):
        spans = list(_spans(composition.content, section, limits.size, count))
        passages.extend(_pack(composition.content, spans, limits, count))
    texts = [composition.content[start.char_start : end.char_end] for start, end in passages]
    tokens = count(texts)
    return [
        _chunk(start, end, text, length, language_of)
        for (start, end), text, length in zip(passages, texts, tokens, strict=True)
    ]


def _sections(blocks: Sequence[PlacedBlock]) -> list[list[PlacedBlock]]:
    """Runs of blocks that one passage may cover. A heading alone is left to the path of what follows it."""

    def key(placed: PlacedBlock) -> tuple[object, ...]:
        return placed.block.layer, placed.block.section_path, placed.block.note_author

    runs = [list(run) for _, run in groupby(blocks, key)]
    with_text = [run for run in runs if any(placed.block.kind != "heading" for placed in run)]
    return with_text or runs


def _spans(
    content: str, section: Sequence[PlacedBlock], size: int, count: Callable[[Sequence[str]], list[int]]
) -> Iterator[Span]:
    lengths = count([placed.block.text for placed in section])
    for placed, tokens in zip(section, lengths, strict=True):
        if tokens <= size:
            yield Span(placed.char_start, placed.char_end, tokens, placed)
        else:
            yield from _divided(content, placed, _SENTENCE_END, size, count)


def _divided(
    content: str,
    placed: PlacedBlock,
    boundary: re.Pattern[str],
    size: int,
    count: Callable[[Sequence[str]], list[int]],
) -> Iterator[Span]:
    for start, end in _pieces(content, placed.char_start, placed.char_end, boundary):
        tokens = count([content[start:end]])[0] if end - start > size // 2 else end - start
        if tokens <= size:
            yield Span(start, end, tokens, placed)
        else:
            for first, last in _halves(content, start, end, size, count):
                yield Span(first, last, count([content[first:last]])[0], placed)


def _pieces(content: str, start: int, end: int, boundary: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    position = start
    for match in boundary.finditer(content, start, end):
        mark = match.start() + len(match.group().rstrip())
        if mark > position:
            yield position, mark
        position = match.end()
    if position < end:
        yield position, end


def _halves(
    content: str, start: int, end: int, size: int, count: Callable[[Sequence[str]], list[int]]
) -> Iterator[tuple[int, int]]:
    """Parts of an overlong sentence, cut at words where there are any."""
    while start < end:
        length = _longest(content, start, end, size, count)
        cut_at = start + length
        if cut_at < end:
            space = max(content.rfind(" ", start + 1, cut_at), content.rfind("\n", start + 1, cut_at))
            cut_at = space if space > start else cut_at
        yield start, cut_at
        start = cut_at + len(content[cut_at:end]) - len(content[cut_at:end].lstrip())


def _longest(content: str, start: int, end: int, size: int, count: Callable[[Sequence[str]], list[int]]) -> int:
    # A token is at least one character here, and hardly ever more than twelve: the window bounds the search.
    window = min(end - start, 12 * size)
    fits = bisect.bisect_right(range(1, window + 1), size, key=lambda n: count([content[start : start + n]])[0])
    return max(1, fits)


def _pack(
    content: str, spans: Sequence[Span], limits: ChunkLimits, count: Callable[[Sequence[str]], list[int]]
) -> Iterator[tuple[Span, Span]]:
    held: list[Span] = []
    for span in spans:
        if held and sum(s.tokens for s in held) + span.tokens > limits.size:
            yield held[0], held[-1]
            held = _repeated(content, held[-1], limits, span.tokens, count)
        held.append(span)
    if held:
        yield held[0], held[-1]


def _repeated(
    content: str, last: Span, limits: ChunkLimits, room_for: int, count: Callable[[Sequence[str]], list[int]]
) -> list[Span]:
    """The end of a passage that the next one repeats: whole sentences, as many as the overlap holds."""
    allowed = min(limits.overlap, limits.size - room_for)
    starts = [
        last.char_start,
        *(match.end() for match in _SENTENCE_END.finditer(content, last.char_start, last.char_end)),
    ]
    for start in starts:
        if (last.char_end - start) > 12 * allowed:
            continue
        tokens = count([content[start : last.char_end]])[0]
        if 0 < tokens <= allowed:
            return [Span(start, last.char_end, tokens, last.block)]
    return []


def _chunk(
    start: Span, end: Span, text: str, tokens: int, language_of: Callable[[str, str | None], str | None]
) -> NewChunk:
    block = start.block.block
    locator = Locator(
        page_index=block.page_index,
        page_label=block.page_label,
        page_label_confidence=block.page_label_confidence,
        section_path=block.section_path,
        paragraph=start.block.paragraph,
        char_start=start.char_start,
        char_end=end.char_end,
        layer=block.layer,
        note_author=block.note_author,
    )
    return NewChunk(
        text=text,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        token_count=tokens,
        language=language_of(text, block.language),
        locator=locator,
    )
