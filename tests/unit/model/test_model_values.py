from __future__ import annotations

import dataclasses
import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from philorag import model
from philorag.model import CanonicalReference, IngestCounts, ItemFailure, Locator, publication_day

TEXT = st.text(max_size=20)
LOCATORS = st.builds(
    Locator,
    page_index=st.none() | st.integers(0),
    page_label=st.none() | TEXT,
    page_label_confidence=st.none() | st.floats(0, 1),
    section_path=st.lists(TEXT, max_size=4).map(tuple),
    paragraph=st.none() | st.integers(1),
    char_start=st.integers(0),
    char_end=st.integers(0),
    canonical=st.lists(st.builds(CanonicalReference, TEXT, TEXT, TEXT), max_size=3).map(tuple),
    layer=st.sampled_from(["main", "note", "apparatus"]),
    note_author=st.sampled_from([None, "author", "editor", "translator"]),
)


@given(LOCATORS)
def test_a_locator_survives_the_database(locator: Locator):
    """What `to_json` writes is JSON, and `from_json` reads it back whole."""
    assert locator == Locator.from_json(json.loads(json.dumps(locator.to_json())))


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("1892", date(1892, 1, 1)), ("1892-05", date(1892, 5, 1)), ("1892-05-17", date(1892, 5, 17)),
        ("0380", date(380, 1, 1)), ("1892-13", None), ("1891-02-29", None), ("0000", None), ("c. 1892", None),
        ("380 BC", None), ("", None), (None, None), ("1892-05-17T00:00", None),
    ],
)  # fmt: skip
def test_a_publication_date_is_compared_by_its_first_day(declared: str | None, expected: date | None):
    """A year or month means its first day; what is no date isn't compared."""
    assert expected == publication_day(declared)


@given(st.dates())
def test_every_day_is_its_own_publication_day(day: date):
    """A full date is itself."""
    assert day == publication_day(day.isoformat())


def test_every_document_of_an_ingest_is_counted():
    """Added, updated, unchanged and failed documents make up the progress."""
    counts = IngestCounts(added=1, updated=2, unchanged=3, failed=[ItemFailure("a", "B", "c")])
    assert counts.documents == 7


def test_the_ground_floor_exports_plain_dataclasses():
    """Every name that is exported exists, and what can be made of it is a dataclass with slots."""
    for name in model.__all__:
        value = getattr(model, name)
        if isinstance(value, type):
            assert dataclasses.is_dataclass(value)
            assert hasattr(value, "__slots__")
