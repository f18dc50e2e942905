"""What an EPUB says of itself: metadata, reading order, navigation and pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from philorag.ingestion.normalise import normalise_prose
from philorag.ingestion.readers.assembly import as_date
from philorag.ingestion.readers.epub_archive import Archive, damaged, parse_xml
from philorag.ingestion.readers.html_notes import Target, resolve, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lxml import etree

__all__ = ["Navigation", "Package", "read_navigation", "read_package"]

_ROLES = {
    "trl": "translators",
    "edt": "editors",
    "ann": "annotators",
    "aui": "authors_of_introduction",
    "com": "compilers",
}
_PAGE_TYPES = {"text/html", "application/xhtml+xml", "application/x-dtbook+xml"}
_EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
_OPF = "{http://www.idpf.org/2007/opf}"
_KEPT = ("identifier", "publisher", "source", "subject", "description", "rights")


@dataclass(frozen=True, slots=True)
class _Item:
    path: str
    media_type: str
    properties: frozenset[str]


@dataclass
class Package:
    """*spine* lists content files in reading order, without the navigation document."""

    spine: list[str] = field(default_factory=list)
    navigation: str | None = None
    ncx: str | None = None
    skipped: set[str] = field(default_factory=set)
    title: str | None = None
    authors: tuple[str, ...] = ()
    date: str | None = None
    language: str | None = None
    metadata: dict[str, object] = field(default_factory=dict)


@dataclass
class Navigation:
    """*titles* by file: depth from 1, and title; *pages* by the place where they begin."""

    titles: dict[str, tuple[int, str]] = field(default_factory=dict)
    pages: dict[Target, str] = field(default_factory=dict)


def read_package(archive: Archive) -> Package:
    container = parse_xml(archive.read("META-INF/container.xml"), "META-INF/container.xml")
    rootfile = container.find(".//{*}rootfile")
    path = rootfile.get("full-path") if rootfile is not None else None
    if not path:
        raise damaged("META-INF/container.xml names no package file")
    opf = parse_xml(archive.read(path), path)
    package = Package()
    _read_spine(opf, path, package)
    _read_metadata(opf, package)
    return package


def _read_spine(opf: etree._Element, path: str, package: Package) -> None:
    items = {item.get("id", ""): _item(item, path) for item in opf.iterfind("{*}manifest/{*}item")}
    spine = opf.find("{*}spine")
    if spine is None:
        raise damaged("its package file has no reading order")
    package.navigation = next((item.path for item in items.values() if "nav" in item.properties), None)
    ncx = items.get(spine.get("toc", ""))
    package.ncx = ncx.path if ncx else None
    for reference in spine.iterfind("{*}itemref"):
        item = items.get(reference.get("idref", ""))
        if item and item.media_type in _PAGE_TYPES and item.path != package.navigation:
            package.spine.append(item.path)
    for reference in opf.iterfind("{*}guide/{*}reference"):
        if reference.get("type", "").lower() in {"cover", "toc", "title-page", "copyright-page"}:
            package.skipped.add(resolve(path, unquote(reference.get("href", "").partition("#")[0])))
    package.spine = list(dict.fromkeys(package.spine))


def _item(item: etree._Element, base: str) -> _Item:
    href = item.get("href", "")
    path = resolve(base, unquote(href.partition("#")[0])) if "://" not in href else ""
    if path.startswith("../") or "\\" in path or "\x00" in path:
        raise damaged("its manifest points outside the archive")
    return _Item(path, item.get("media-type", "").lower(), frozenset(item.get("properties", "").split()))


def _read_metadata(opf: etree._Element, package: Package) -> None:
    metadata = opf.find("{*}metadata")
    if metadata is None:
        return
    package.title = next(iter(_values(metadata, "title")), None)
    package.language = next(iter(_values(metadata, "language")), None)
    package.date, file_date = _dates(metadata)
    if file_date is not None:
        package.metadata["file_date"] = file_date
    roles = dict(_people(metadata))
    package.authors = tuple(name for name, role in roles.items() if "aut" in role)
    for code, key in _ROLES.items():
        names = [name for name, role in roles.items() if code in role and "aut" not in role]
        if names:
            package.metadata[key] = names
    for name in _KEPT:
        values = _values(metadata, name)
        if values:
            package.metadata[name] = values[0] if len(values) == 1 else values


def _values(metadata: etree._Element, name: str) -> list[str]:
    texts = (normalise_prose("".join(node.itertext())) for node in metadata.iterfind(f".//{{*}}{name}"))
    return [text for text in texts if text]


def _people(metadata: etree._Element) -> Iterator[tuple[str, set[str]]]:
    """Names with their MARC relator codes; a creator without a role is an author."""
    refined: dict[str, set[str]] = {}
    for meta in metadata.iterfind(".//{*}meta[@refines]"):
        if meta.get("property") == "role":
            refined.setdefault(meta.get("refines", "").lstrip("#"), set()).add((meta.text or "").strip().lower())
    for tag, default in (("creator", {"aut"}), ("contributor", set[str]())):
        for node in metadata.iterfind(f".//{{*}}{tag}"):
            name = normalise_prose("".join(node.itertext()))
            attribute = (node.get(f"{_OPF}role") or "").lower()
            roles = refined.get(node.get("id", ""), set()) | ({attribute} if attribute else set())
            if name:
                yield name, roles or default


def _dates(metadata: etree._Element) -> tuple[str | None, str | None]:
    """When the work was published, and when the file was made.

    A bare `dc:date` with a time of day, or the day of the last change, dates the file: a citation built on it would
    give a translation of 1893 the year of its e-book.
    """
    nodes = [
        (node.get(f"{_OPF}event", ""), "".join(node.itertext()).strip()) for node in metadata.iterfind(".//{*}date")
    ]
    events = {event: as_date(text) for event, text in reversed(nodes)}
    published = next((events[name] for name in ("original-publication", "publication") if events.get(name)), None)
    bare = next((text for event, text in nodes if not event), None)
    if published is not None or bare is None:
        return published, None
    changed = [
        meta.text or "" for meta in metadata.iterfind(".//{*}meta") if meta.get("property") == "dcterms:modified"
    ]
    of_file = "T" in bare or any(text.strip().startswith(bare) for text in changed)
    return (None, as_date(bare)) if of_file else (as_date(bare), None)


def read_navigation(archive: Archive, package: Package) -> Navigation:
    """From the EPUB 3 navigation document, else the NCX of EPUB 2; none is no error."""
    navigation = Navigation()
    if package.navigation and package.navigation in archive:
        _read_nav(parse_xml(archive.read(package.navigation), package.navigation), package.navigation, navigation)
    if not navigation.titles and package.ncx and package.ncx in archive:
        _read_ncx(parse_xml(archive.read(package.ncx), package.ncx), package.ncx, navigation)
    return navigation


def _read_nav(root: etree._Element, base: str, navigation: Navigation) -> None:
    for nav in root.iter("{*}nav"):
        types = (nav.get(_EPUB_TYPE) or nav.get("role") or "").split()
        for link in nav.iter("{*}a"):
            href, title = link.get("href", ""), normalise_prose("".join(link.itertext()))
            if "toc" in types or "doc-toc" in types:
                depth = sum(1 for parent in link.iterancestors("{*}ol"))
                _add_title(navigation, base, href, depth, title)
            elif "page-list" in types or "doc-pagelist" in types:
                _add_page(navigation, base, href, title)


def _read_ncx(root: etree._Element, base: str, navigation: Navigation) -> None:
    for point in root.iter("{*}navPoint"):
        depth = 1 + sum(1 for parent in point.iterancestors("{*}navPoint"))
        _add_title(navigation, base, _ncx_source(point), depth, _ncx_label(point))
    for page in root.iter("{*}pageTarget"):
        _add_page(navigation, base, _ncx_source(page), _ncx_label(page) or page.get("value", ""))


def _ncx_source(point: etree._Element) -> str:
    content = point.find("{*}content")
    return content.get("src", "") if content is not None else ""


def _ncx_label(point: etree._Element) -> str:
    return normalise_prose(point.findtext("{*}navLabel/{*}text") or "")


def _add_title(navigation: Navigation, base: str, href: str, depth: int, title: str) -> None:
    file = resolve(base, unquote(href.partition("#")[0]))
    if title:
        navigation.titles.setdefault(file, (max(1, depth), title))


def _add_page(navigation: Navigation, base: str, href: str, label: str) -> None:
    target = target_of(href, base)
    if target and label:
        navigation.pages.setdefault(target, label)
