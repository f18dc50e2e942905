from datetime import UTC, datetime

import pytest

from philorag.embedding.retrying import retry_after

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("Sat, 21 Nov 2026 12:01:00 GMT", 60),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("-1", None),
        ("soon", None),
        ("٣", None),
        ("", None),
    ],
)
def test_either_form_of_retry_after_is_read(value: str, seconds: float | None):
    """Seconds and dates are understood; a past date is now, and anything else is nothing."""
    assert retry_after({"retry-after": value}, lambda: NOW) == seconds


def test_no_header_asks_for_nothing():
    """Without the header there is no wish."""
    assert retry_after({}) is None
