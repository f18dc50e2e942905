"""A measured figure, its goal, and how both are shown."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Figure", "Goal", "load", "p50", "p95"]


@dataclass(frozen=True, slots=True)
class Goal:
    relation: Literal["≤", "<", "≥", ">"]
    bound: float

    def met_by(self, value: float) -> bool:
        match self.relation:
            case "≤":
                return value <= self.bound
            case "<":
                return value < self.bound
            case "≥":
                return value >= self.bound
            case ">":
                return value > self.bound

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """*note* says what the value was made of; a figure without a goal is there to read the others by."""

    what: str
    value: float
    unit: str = ""
    digits: int = 2
    goal: Goal | None = None
    note: str = ""

    @property
    def shown(self) -> str:
        return f"{self.value:,.{self.digits}f}{' ' if self.unit else ''}{self.unit}"

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if self.goal.met_by(self.value) else "**not met**"

    def line(self) -> str:
        goal = "" if self.goal is None else f"goal {self.goal}: {self.verdict.strip('*')}"
        return f"{self.what:<62} {self.shown:>12}  {goal:<22} {self.note}".rstrip()

    def row(self) -> str:
        return f"| {self.what} | {self.shown} | {self.goal or ''} | {self.verdict} | {self.note} |"


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def load() -> str:
    """How busy the machine is with other things: without it a figure says little."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
