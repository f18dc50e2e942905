"""Cutting a composed text into passages that respect sections, paragraphs and sentences, in that order.

Lengths are tokens of the model that embeds. A passage never crosses a section or a layer; within one, it may repeat the
last sentences of the passage before.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from philorag.model import Locator, NewChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from philorag.ingestion.composition import Composition, PlacedBlock

    Count = Callable[[Sequence[str]], list[int]]
    LanguageOf = Callable[[str, str | None], str | None]

__all__ = ["ChunkLimits", "Span", "cut"]

# A sentence ends at its mark, with what closes it, before white space, or with its line where lines mean something.
# "Rep. 514a", "e.g. this", "J. S. Mill" and "cf. Hume" go on, while Greek sentences begin in lower case and end at `·`
# and `;` too. Chinese and Japanese leave no space.
_SENTENCE_END = re.compile(
    r"""(?:(?<=[.!?…؟।])(?<!\b\w\.)(?<!\b(?:[Cc]f|[Ss]t|[Pp]p|Mr|Dr|Ed)\.)(?<!\b(?:[Vv]ol|Mrs|Art|Bks)\.)(?<!\bProf\.)"""
    r"""[»”’"')\]]*\s+(?=[^\sa-z0-9à-öø-ÿ]))"""
    r"""|(?:(?<=[\u0370-\u03ff\u1f00-\u1fff][;·])[»”’"')\]]*\s+(?=\S))|\s*\n\s*|(?<=[。！？])\s*"""
)
_CLAUSE_END = re.compile(r"(?<=[;:·—,])\s+")
_LEVELS = (_SENTENCE_END, _CLAUSE_END)
# More characters than a token ever has: what is longer than this many a token need not be counted to be too long.
_CHARS_A_TOKEN = 16
_COUNTED_AT_ONCE = 1 << 18
_NEARLY_FULL = 0.9
# Up to here a full passage would leave a remainder of less than half its size.
_TWO_PASSAGES = 1.5
_JOINERS = "\u200d\ufe0e\ufe0f"
_LONGEST_CLUSTER = 16


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
    begins_sentence: bool = True

    @property
    def is_heading(self) -> bool:
        return self.block.block.kind == "heading"


def cut(composition: Composition, limits: ChunkLimits, count: Count, language_of: LanguageOf) -> list[NewChunk]:
    """The passages of a text, in order.

    *count* gives the tokens of each of some texts; *language_of* a passage's language from its text and what the
    source declared.
    """
    cutter = _Cutter(composition.content, limits, count)
    return [
        _chunk(composition.content, passage, language_of)
        for section in _sections(composition.blocks)
        for passage in cutter.passages(section)
    ]


def _sections(blocks: Sequence[PlacedBlock]) -> list[list[PlacedBlock]]:
    """Runs of blocks that one passage may cover. A heading alone is left to the path of what follows it."""
    runs: list[list[PlacedBlock]] = []
    for placed in blocks:
        last = runs[-1][-1] if runs else None
        if last is None or _divides(last, placed):
            runs.append([])
        runs[-1].append(placed)
    with_text = [run for run in runs if any(placed.block.kind != "heading" for placed in run)]
    return with_text or runs


def _divides(last: PlacedBlock, placed: PlacedBlock) -> bool:
    def key(one: PlacedBlock) -> tuple[object, ...]:
        return one.block.layer, one.block.section_path, one.block.note_author

    # Two sections in a row may have the same heading.
    return key(last) != key(placed) or (placed.block.kind == "heading" and last.block.kind != "heading")


@dataclass(frozen=True, slots=True)
class _Passage:
    """Spans that make a passage, which begins at *char_start*: before them when it repeats some text."""

    char_start: int
    tokens: int
    spans: Sequence[Span]
    block: PlacedBlock


@dataclass(frozen=True, slots=True)
class _Cutter:
    content: str
    limits: ChunkLimits
    count: Count

    def passages(self, section: Sequence[PlacedBlock]) -> Iterator[_Passage]:
        spans = list(self._spans(section))
        before = first = 0
        while first < len(spans):
            repeated = self._repeated(spans[before:first], self.limits.size - spans[first].tokens)
            room = self.limits.size - (repeated.tokens if repeated else 0)
            passage = self._fitting(repeated, spans[first : _filled(spans, first, room)])
            yield passage
            before, first = first, first + len(passage.spans)

    def _fitting(self, repeated: Span | None, spans: Sequence[Span]) -> _Passage:
        """As many of *spans* as really fit: a text may have more tokens than its parts."""
        while True:
            begin = repeated or spans[0]
            tokens = self._tokens(begin.char_start, spans[-1].char_end)
            if tokens <= self.limits.size or (len(spans) == 1 and repeated is None):
                return _Passage(begin.char_start, tokens, spans, begin.block)
            if len(spans) > 1:
                spans = spans[:-1]
            else:
                repeated = None

    def _spans(self, section: Sequence[PlacedBlock]) -> Iterator[Span]:
        size = self.limits.size
        lengths = self._measured([(placed.char_start, placed.char_end) for placed in section])
        heading = 0
        for placed, tokens in zip(section, lengths, strict=True):
            # What follows a heading leaves it room, so that the two stay together.
            limit = max(size - heading, size // 2)
            if tokens <= limit:
                yield Span(placed.char_start, placed.char_end, tokens, placed)
            else:
                yield from self._divided(placed, placed.char_start, placed.char_end, limit)
            heading = heading + tokens if placed.block.kind == "heading" else 0

    def _divided(self, placed: PlacedBlock, start: int, end: int, limit: int, level: int = 0) -> Iterator[Span]:
        pieces = list(_pieces(self.content, start, end, _LEVELS[level]))
        for (first, last), tokens in zip(pieces, self._measured(pieces), strict=True):
            begins = level == 0 or first == start
            if tokens <= limit:
                yield Span(first, last, tokens, placed, begins)
            elif level + 1 < len(_LEVELS):
                for span in self._divided(placed, first, last, limit, level + 1):
                    yield span if begins or span.char_start > first else _continued(span)
            else:
                yield from self._words(placed, first, last, limit, begins_sentence=begins)

    def _words(self, placed: PlacedBlock, start: int, end: int, limit: int, *, begins_sentence: bool) -> Iterator[Span]:
        """Parts of an overlong clause, cut at spaces where there are any."""
        while start < end:
            reach = self._reach(start, end, limit)
            stop = self._last_space(start, reach) if reach < end else end
            tokens = self._tokens(start, stop)
            if tokens > limit:
                stop, tokens = reach, self._tokens(start, reach)
            yield Span(start, stop, tokens, placed, begins_sentence)
            begins_sentence = False
            start = stop
            while start < end and self.content[start].isspace():
                start += 1

    def _reach(self, start: int, end: int, limit: int) -> int:
        """How far from *start* a text of nearly *limit* tokens goes."""
        fits, beyond = start + 1, min(end, start + _CHARS_A_TOKEN * limit) + 1
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            tokens = self._tokens(start, middle)
            if tokens > limit:
                beyond = middle
            else:
                fits = middle
                if tokens >= _NEARLY_FULL * limit:
                    break
        return fits

    def _last_space(self, start: int, reach: int) -> int:
        space = self.content.rfind(" ", start + 1, reach + 1)
        if space > start:
            return space
        for stop in range(reach, max(start, reach - _LONGEST_CLUSTER), -1):
            if not _joined(self.content[stop - 1], self.content[stop]):
                return stop
        return reach

    def _repeated(self, before: Sequence[Span], room: int) -> Span | None:
        """The last sentences of *before* that the next passage repeats: as many as the overlap and *room* hold."""
        allowed = min(self.limits.overlap, room)
        if not before or allowed <= 0:
            return None
        end = before[-1].char_end
        starts: list[tuple[int, PlacedBlock]] = []
        for span in reversed(before):
            if span.is_heading or end - span.char_end > _CHARS_A_TOKEN * allowed:
                break
            starts.extend(
                (start, span.block)
                for start in _sentence_starts(self.content, span)
                # Repeated whole, the passage before would say nothing of its own.
                if before[0].char_start < start and end - start <= _CHARS_A_TOKEN * allowed
            )
        starts.sort(key=lambda item: item[0])
        lengths = self._measured([(start, end) for start, _ in starts])
        fitting = ((s, n, block) for (s, block), n in zip(starts, lengths, strict=True) if 0 < n <= allowed)
        return next((Span(start, end, tokens, block) for start, tokens, block in fitting), None)

    def _tokens(self, start: int, end: int) -> int:
        return self.count([self.content[start:end]])[0]

    def _measured(self, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """The tokens of each range; of one that is much too long, only that it is."""
        longest = _CHARS_A_TOKEN * self.limits.size
        lengths = [self.limits.size + 1] * len(ranges)
        batch: list[int] = []
        pending = 0
        for position, (start, end) in enumerate(ranges):
            if end - start <= longest:
                batch.append(position)
                pending += end - start
            if batch and (pending >= _COUNTED_AT_ONCE or position == len(ranges) - 1):
                counted = self.count([self.content[slice(*ranges[one])] for one in batch])
                for one, tokens in zip(batch, counted, strict=True):
                    lengths[one] = tokens
                batch, pending = [], 0
        return lengths


def _filled(spans: Sequence[Span], first: int, room: int) -> int:
    """Where the passage that begins at span *first* ends; what is left for two passages is shared out evenly."""
    goal = _goal(spans, first, room)
    total, lone_heading = 0, True
    for position in range(first, len(spans)):
        span = spans[position]
        enough = total + span.tokens / 2 > goal and not lone_heading
        if position > first and (enough or total + span.tokens > room):
            return position
        total += span.tokens
        lone_heading = lone_heading and span.is_heading
    return len(spans)


def _goal(spans: Sequence[Span], first: int, room: int) -> float:
    rest = 0
    for position in range(first, len(spans)):
        rest += spans[position].tokens
        if rest >= _TWO_PASSAGES * room:
            return math.inf
    return rest / 2 if rest > room else math.inf


def _pieces(content: str, start: int, end: int, boundary: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    position = start
    for match in boundary.finditer(content, start, end):
        stop = match.start() + len(match.group().rstrip())
        if stop > position:
            yield position, stop
        position = match.end()
    if position < end:
        yield position, end


def _sentence_starts(content: str, span: Span) -> list[int]:
    inside = [start for start, _ in _pieces(content, span.char_start, span.char_end, _SENTENCE_END)]
    return inside if span.begins_sentence else inside[1:]


def _continued(span: Span) -> Span:
    return Span(span.char_start, span.char_end, span.tokens, span.block, begins_sentence=False)


def _joined(before: str, after: str) -> bool:
    """Whether two characters are seen as one: a letter with its accent, an emoji with what completes it."""
    return bool(unicodedata.combining(after)) or after in _JOINERS or before == "\u200d"


def _chunk(content: str, passage: _Passage, language_of: LanguageOf) -> NewChunk:
    end = passage.spans[-1].char_end
    text = content[passage.char_start : end]
    block = passage.block.block
    locator = Locator(
        page_index=block.page_index,
        page_label=block.page_label,
        page_label_confidence=block.page_label_confidence,
        section_path=block.section_path,
        paragraph=passage.block.paragraph,
        char_start=passage.char_start,
        char_end=end,
        layer=block.layer,
        note_author=block.note_author,
    )
    return NewChunk(
        text=text,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        token_count=passage.tokens,
        language=language_of(text, _declared_language(passage.spans)),
        locator=locator,
    )


def _declared_language(spans: Sequence[Span]) -> str | None:
    """What most of the text is declared to be in."""
    shares: Counter[str | None] = Counter()
    for span in spans:
        shares[span.block.block.language] += span.char_end - span.char_start
    return shares.most_common(1)[0][0]
