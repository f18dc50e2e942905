"""Argument and result types that several toolsets share."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from philorag.errors import InvalidInput
from philorag.model import Document, Locator

__all__ = [
    "Arguments",
    "DateRange",
    "Day",
    "DocumentId",
    "JsonObject",
    "LocatorObject",
    "Metadata",
    "Moment",
    "Path",
    "Tag",
    "Text",
    "Untrusted",
    "document_metadata",
    "joined_authors",
    "moment",
    "one_of",
    "split_authors",
    "storable",
    "to_id",
    "written",
]

_LARGEST_METADATA = 65_536


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not hold NUL characters")
    return value


def storable(value: dict[str, Any]) -> dict[str, Any]:
    """*value* if PostgreSQL can hold it as JSON; raises `ValueError` that says why not."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ValueError("must be JSON without NaN or infinity") from None
    if len(text) > _LARGEST_METADATA:
        raise ValueError(f"must be at most {_LARGEST_METADATA} characters as JSON")
    if r"\u0000" in text:
        raise ValueError("must not hold NUL characters")
    return value


def written(value: str) -> str:
    """*value* if it has more than white space in it; raises `ValueError`."""
    if not value.strip():
        raise ValueError("holds nothing but white space")
    return value


def _real_day(value: str) -> str:
    try:
        date.fromisoformat(value)
    except ValueError:
        raise ValueError("is no date of the calendar") from None
    return value


Text = Annotated[str, AfterValidator(_without_nul)]
Path = Annotated[Text, Field(min_length=1, max_length=1_000)]
Tag = Annotated[Text, Field(min_length=1, max_length=100)]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", examples=["1893-05-01"]), AfterValidator(_real_day)]
JsonObject = Annotated[dict[str, Any], AfterValidator(storable)]
DocumentId = (
    Annotated[int, Field(ge=1, le=2**63 - 1)] | Annotated[str, Field(pattern=r"^[1-9]\d{0,17}$", examples=["42"])]
)
Moment = Annotated[str, Field(description="ISO 8601, UTC")]


class Arguments(BaseModel):
    """An argument that is an object: unknown members are refused."""

    model_config = ConfigDict(extra="forbid")


class Untrusted(BaseModel):
    """A result whose text came from a document: data, never instructions."""

    content_trust: Literal["untrusted"] = "untrusted"


class DateRange(Arguments):
    start: Day | None = None
    end: Day | None = None

    @model_validator(mode="after")
    def _in_order(self) -> DateRange:
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ValueError("its `start` is after its `end`")
        return self


class LocatorObject(BaseModel):
    """Where a passage stands; `content[char_start:char_end]` of its document is the passage."""

    page_index: int | None
    page_label: str | None
    page_label_confidence: float | None
    section_path: list[str]
    paragraph: int | None
    char_start: int
    char_end: int
    canonical: list[dict[str, str]]
    layer: Literal["main", "note", "apparatus"]
    note_author: Literal["author", "editor", "translator"] | None

    @classmethod
    def of(cls, locator: Locator) -> LocatorObject:
        return cls(**locator.to_json())


class Metadata(BaseModel):
    """What the older servers' clients expect of a document's metadata, with the document's own keys beside it."""

    model_config = ConfigDict(extra="allow")


def to_id(document_id: int | str) -> int:
    """A document's id from either spelling."""
    return int(document_id)


def one_of(**arguments: object) -> None:
    """Raise `InvalidInput` unless exactly one of *arguments* is given."""
    given = [name for name, value in arguments.items() if value is not None]
    if len(given) != 1:
        names = ", ".join(f"`{name}`" for name in arguments)
        raise InvalidInput(
            f"Give exactly one of {names}, such as {next(iter(arguments))}=42; got {', '.join(given) or 'none'}.",
            argument=next(iter(arguments)),
        )


def moment(value: datetime | None) -> str | None:
    """*value* in ISO 8601, to the microsecond, in UTC."""
    return None if value is None else value.isoformat()


def split_authors(authors: str | None) -> tuple[str, ...]:
    """The names in `A. One; B. Two`."""
    return tuple(name for part in (authors or "").split(";") if (name := re.sub(r"\s+", " ", part).strip()))


def joined_authors(document: Document) -> str | None:
    """A document's authors in one string, as the older servers had them."""
    return "; ".join(document.authors) or None


def document_metadata(document: Document) -> dict[str, Any]:
    """Everything that is known of a document, its own metadata last, which wins."""
    return {
        "doc_id": document.id,
        "source_uri": document.source_uri,
        "title": document.title,
        "authors": joined_authors(document),
        "publication_date": document.publication_date,
        "last_processed_at": moment(document.last_processed_at),
        "language": document.language,
        "tags": list(document.tags),
        "category": document.category,
        "created_at": moment(document.created_at),
        "modified_at": moment(document.modified_at),
        "is_generated": document.is_generated,
        "word_count": document.word_count,
        **document.metadata,
    }
