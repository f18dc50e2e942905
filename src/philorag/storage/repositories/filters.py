"""The one translation of `SearchFilters` to SQL, over the aliases `c` (chunks) and `d` (documents)."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any

from philorag.model import publication_day

if TYPE_CHECKING:
    from philorag.model import SearchFilters

__all__ = ["where"]

_TAGGED = """d.id in (select t.document_id from document_tags t
                       where t.library_id = :library_id and t.tag = :{name})"""
_AUTHOR = r"""exists (select from jsonb_array_elements_text(d.authors) as author
                       where author ilike :author escape '\')"""


def where(filters: SearchFilters) -> tuple[str, dict[str, Any]]:
    """SQL conditions for *filters* joined by `and`, and their parameters. The library itself is not among them."""
    conditions: dict[str, dict[str, Any]] = {"d.kind = any (:kinds)": {"kinds": list(filters.kinds)}}
    if filters.author is not None:
        conditions[_AUTHOR] = {"author": _containing(filters.author)}
    if filters.title is not None:
        conditions[r"d.title ilike :title escape '\'"] = {"title": _containing(filters.title)}
    if filters.language is not None:
        conditions["c.language = :language"] = {"language": filters.language}
    if filters.category is not None:
        conditions["d.category = :category"] = {"category": filters.category}
    if filters.document_id is not None:
        conditions["d.id = :document_id"] = {"document_id": filters.document_id}
    if filters.layer is not None:
        conditions["c.layer = :layer"] = {"layer": filters.layer}
    if filters.metadata:
        contained = json.dumps(filters.metadata, ensure_ascii=False)
        conditions["d.metadata_jsonb @> cast(:metadata as jsonb)"] = {"metadata": contained}
    for number, tag in enumerate(filters.tags):
        conditions[_TAGGED.format(name=f"tag_{number}")] = {f"tag_{number}": tag}
    conditions |= _published(filters) | _created(filters)
    parameters = {name: value for named in conditions.values() for name, value in named.items()}
    return "\n   and ".join(conditions), parameters


def _published(filters: SearchFilters) -> dict[str, dict[str, Any]]:
    conditions: dict[str, dict[str, Any]] = {}
    if filters.year_from is not None:
        conditions["d.publication_day >= :year_from"] = {"year_from": date(filters.year_from, 1, 1)}
    if filters.year_to is not None:
        conditions["d.publication_day <= :year_to"] = {"year_to": date(filters.year_to, 12, 31)}
    if filters.published_after is not None:
        conditions["d.publication_day > :published_after"] = {
            "published_after": publication_day(filters.published_after)
        }
    if filters.published_before is not None:
        conditions["d.publication_day < :published_before"] = {
            "published_before": publication_day(filters.published_before)
        }
    return conditions


def _created(filters: SearchFilters) -> dict[str, dict[str, Any]]:
    conditions: dict[str, dict[str, Any]] = {}
    if filters.created_from is not None:
        conditions["d.created_at >= cast(:created_from as date)"] = {
            "created_from": date.fromisoformat(filters.created_from)
        }
    if filters.created_to is not None:
        conditions["d.created_at < cast(:created_to as date) + 1"] = {
            "created_to": date.fromisoformat(filters.created_to)
        }
    return conditions


def _containing(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"
