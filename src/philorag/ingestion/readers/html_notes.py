"""Which elements of a set of HTML files are notes, which links refer to them, and under which label."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from philorag.ingestion.normalise import normalise_prose
from philorag.ingestion.readers.assembly import Anchors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from selectolax.lexbor import LexborHTMLParser, LexborNode

__all__ = ["NoteIndex", "Target", "attributes", "is_backlink", "resolve", "semantics", "target_of"]

Target = tuple[str, str]
"""A file's name within its publication ("" for a lone HTML file) and an id in it."""

_MARK_TEXT = re.compile(r"[\[({]?\s*(\d{1,4}|[*†‡§¶‖#]{1,3}|[a-z]|[ivxlc]{1,6})\s*[\])}]?\.?")
_TYPED_MARK = re.compile(r"(?:^| )(?:noteref|doc-noteref)(?: |$)")
_TYPED_NOTE = re.compile(r"(?:^| )(?:footnote|endnote|rearnote|note|doc-footnote|doc-endnote)(?: |$)")
_NOTE_CLASS = re.compile(r"(?:^|[\s_-])(?:foot|end|rear)?(?:notes?|fn)(?:[\s_\d-]|$)", re.IGNORECASE)
_BACKLINK_TYPE = re.compile(r"(?:^| )(?:backlink|doc-backlink|referrer)(?: |$)")
_BACKLINK_CLASS = re.compile(r"back-?link|backref|footnote-?back|reversefootnote|fn-?back|noteback", re.IGNORECASE)
_ARROWS = re.compile(r"[\s↩↑⏎⤴^\ufe0e\ufe0f]+|back|return|jump up", re.IGNORECASE)
_BLOCKS = frozenset({"aside", "dd", "div", "li", "p", "section", "td", "tr", "blockquote"})
_REFUSED = frozenset({"article", "body", "h1", "h2", "h3", "h4", "h5", "h6", "html", "main", "nav"})
_MAX_MARK = 12
_OPENING = 80


def attributes(node: LexborNode) -> dict[str, str]:
    return {name: value or "" for name, value in node.attributes.items()}


def semantics(attrs: Mapping[str, str]) -> str:
    """`epub:type` and `role`, the two vocabularies for the same thing."""
    return f"{attrs.get('epub:type', '')} {attrs.get('role', '')}".strip().lower()


def target_of(href: str, file: str) -> Target | None:
    """Where a link inside the publication leads, or None when it leads elsewhere or to a whole file."""
    if "#" not in href:
        return None
    try:
        parts = urlsplit(href)
    except ValueError:
        return None
    if parts.scheme or parts.netloc or not parts.fragment:
        return None
    return (resolve(file, unquote(parts.path)) if parts.path else file, unquote(parts.fragment))


def resolve(base: str, path: str) -> str:
    """*path* as seen from the file *base*, both inside one archive; `..` beyond the root stays visible."""
    parts = [] if path.startswith("/") else base.split("/")[:-1]
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def is_backlink(attrs: Mapping[str, str], text: str) -> bool:
    """Whether a link in a note only leads back to the mark."""
    typed = _BACKLINK_TYPE.search(semantics(attrs)) or _BACKLINK_CLASS.search(attrs.get("class", ""))
    return bool(typed or attrs.get("rev", "") == "footnote" or _ARROWS.fullmatch(text.strip()))


@dataclass(frozen=True, slots=True)
class _Link:
    file: str
    target: Target
    label: str
    typed: bool
    order: int


@dataclass
class NoteIndex:
    """Filled with `add` for every file in reading order, then asked.

    An untyped link counts as a mark only if it looks like one (`3`, `[3]`, `*`), stands before its target, and the
    target is set as a note or opens with the same label: a table of contents full of numbers is none.
    """

    anchors: Anchors = field(default_factory=Anchors)
    _links: list[_Link] = field(default_factory=list)
    _places: dict[Target, int] = field(default_factory=dict)
    _note_like: dict[Target, tuple[bool, str]] = field(default_factory=dict)
    _labels: dict[Target, str] | None = None
    _order: int = 0
    _sections: dict[int, bool] = field(default_factory=dict)

    def add(self, tree: LexborHTMLParser, file: str) -> None:
        self.new_tree()
        for node in tree.css("[id], a[name], a[href]"):
            self._order += 1
            attrs = attributes(node)
            name = attrs.get("id") or (attrs.get("name") if node.tag == "a" else None)
            if name:
                self._add_place(node, (file, name), attrs)
            if node.tag == "a" and attrs.get("href"):
                self._add_link(node, file, attrs)

    def _add_place(self, node: LexborNode, place: Target, attrs: dict[str, str]) -> None:
        if place in self._places:
            return
        self._places[place] = self._order
        holder = self.holder(node)
        if holder is None:
            return
        typed = bool(_TYPED_NOTE.search(semantics(attrs)))
        classes = " ".join(_classes(holder))
        listed = holder.tag == "li" and holder.parent is not None and holder.parent.tag == "ol"
        self._note_like[place] = (typed or listed or bool(_NOTE_CLASS.search(classes)), _opening(holder))

    def _add_link(self, node: LexborNode, file: str, attrs: dict[str, str]) -> None:
        target = target_of(attrs["href"], file)
        text = normalise_prose(node.text()[:200])
        if target is None or is_backlink(attrs, text):
            return
        typed = bool(_TYPED_MARK.search(semantics(attrs)))
        mark = _MARK_TEXT.fullmatch(text) if len(text) <= _MAX_MARK else None
        if mark or typed:
            self._links.append(_Link(file, target, mark[1] if mark else text, typed, self._order))

    @property
    def labels(self) -> Mapping[Target, str]:
        """The notes that something refers to, each with its unique label."""
        if self._labels is None:
            self._labels = {}
            for link in self._links:
                if link.target not in self._labels and self._is_note(link):
                    self._labels[link.target] = self.anchors.unique(link.label)
        return self._labels

    def _is_note(self, link: _Link) -> bool:
        if link.target not in self._note_like:
            return False
        set_as_note, opening = self._note_like[link.target]
        if link.typed:
            return True
        opens_alike = re.match(rf"[\[(]?{re.escape(link.label)}(?!\w)", opening) is not None
        return link.order < self._places[link.target] and (set_as_note or opens_alike)

    def new_tree(self) -> None:
        """Forget nodes: their identities are only unique while their tree lives."""
        self._sections = {}

    def holder(self, node: LexborNode) -> LexborNode | None:
        """The block that is the note when *node* carries the id that a mark leads to."""
        current: LexborNode | None = node
        while current is not None and current.tag not in _BLOCKS:
            if current.tag in _REFUSED:
                return None
            current = current.parent
        if current is None:
            return None
        key = current.mem_id
        if key not in self._sections:
            self._sections[key] = current.css_first("h1, h2, h3, h4, h5, h6") is not None
        return None if self._sections[key] else current

    def anchor_at(self, file: str, attrs: Mapping[str, str], tag: str) -> str | None:
        """The label of the note that has this element's id (or, in old pages, name)."""
        name = attrs.get("id") or (attrs.get("name") if tag == "a" else None)
        return self.labels.get((file, name)) if name else None


def _classes(holder: LexborNode) -> Iterator[str]:
    """Classes of the block and of the three around it."""
    current: LexborNode | None = holder
    for _ in range(4):
        if current is None or current.tag in {"body", "html"}:
            return
        yield (current.attributes or {}).get("class") or ""
        yield semantics(attributes(current)).replace("doc-", "")
        current = current.parent


def _opening(holder: LexborNode) -> str:
    """The first words of a block, without collecting the whole of it."""
    text = ""
    for node in holder.traverse(include_text=True):
        if node.tag == "-text":
            text += node.text_content or ""
            if len(text) > _OPENING:
                break
    return normalise_prose(text[:_OPENING])
