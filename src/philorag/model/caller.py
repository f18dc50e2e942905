from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Caller"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and the one library that the call may touch. Made by the gateway, never from arguments."""

    user_id: str
    library_id: int
    library: str
    task_id: str = "default"
    may_write: bool = True
