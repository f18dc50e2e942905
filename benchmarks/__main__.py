"""`python -m benchmarks [NAME...]`: run benchmarks, print a line for each figure."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
from pathlib import Path

from benchmarks.figures import load
from benchmarks.table import keep, write

NAMES = ("ingest", "unchanged", "start", "search", "retrieval")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what philorag promises.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all): {', '.join(NAMES)}")
    parser.add_argument("--sample", type=int, metavar="N", help="a quick look: N queries, documents or runs")
    parser.add_argument("--write", action="store_true", help="renew the table in docs/benchmarks.md")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    # Each benchmark chooses its own library and folders.
    for variable in [name for name in os.environ if name.startswith("PHILORAG_") and name != "PHILORAG_TEST_DATA"]:
        del os.environ[variable]
    met = [_run(name, chosen.sample, chosen.write) for name in chosen.names or NAMES]
    if chosen.write:
        write(PAGE)
    sys.exit(0 if all(met) else 1)


def _run(name: str, sample: int | None, write: bool) -> bool:
    before = load()
    figures = asyncio.run(importlib.import_module(f"benchmarks.{name}").measure(sample))
    print(f"# {name} (load average {before} before, {load()} after)")
    for figure in figures:
        print(figure.line(), flush=True)
    if write:
        keep(name, figures, before, sample)
    return all(figure.goal is None or figure.goal.met_by(figure.value) for figure in figures)


if __name__ == "__main__":
    main()
