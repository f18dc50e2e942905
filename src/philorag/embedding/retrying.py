"""Asking again after a failure that may pass.

Neither stamina's waits nor those of the `openai` package can be cut short when the gateway closes, and the latter
bounds its attempts but not its time.
"""

from __future__ import annotations

import email.utils
import logging
import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from philorag.errors import EmbeddingFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Passing", "Retries", "closing", "retry_after"]

_LOG = logging.getLogger(__name__)
_ATTEMPTS: Final = 8
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 20.0

T = TypeVar("T")


class Passing(Exception):
    """An attempt failed with *failure*, but another may succeed, after *seconds* if the other side named them."""

    def __init__(self, failure: EmbeddingFailed, seconds: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.seconds = seconds


class Retries:
    """Repeats attempts with growing waits. *wait* takes seconds and is true when it was cut short for good."""

    def __init__(
        self,
        wait: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._wait = wait
        self._clock = clock
        self._chance = chance

    def until_it_works(self, attempt: Callable[[], T], patience: float) -> T:
        """The first result of *attempt*; no new attempt begins after *patience* seconds. Raises `EmbeddingFailed`."""
        deadline = self._clock() + patience
        for number in range(_ATTEMPTS):
            try:
                return attempt()
            except Passing as error:
                passing = error
            delay = self._delay(number) if passing.seconds is None else passing.seconds
            if number + 1 == _ATTEMPTS or self._clock() + delay > deadline:
                break
            _LOG.info("%s Trying again in %.1f s.", passing.failure.message, delay)
            if self._wait(delay):
                raise closing()
        raise passing.failure

    def _delay(self, number: int) -> float:
        """Half of it by chance, so that gateways that failed together don't come back together."""
        return float(min(_FIRST_WAIT * 2**number, _LONGEST_WAIT) * (0.5 + self._chance() / 2))


def closing() -> EmbeddingFailed:
    return EmbeddingFailed("The gateway is closing. Try again when it is back.")


def retry_after(headers: Mapping[str, str], now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """The seconds that an answer asks to wait, from either form of `Retry-After`; None if it doesn't say."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        date = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max((date.replace(tzinfo=date.tzinfo or UTC) - now()).total_seconds(), 0.0)
