"""`philorag search`: passages as one reads them, each with its citation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from philorag.model import SearchFilters
from philorag.retrieval.citation import cite

if TYPE_CHECKING:
    from rich.console import Console

    from philorag.model import Caller, Hit
    from philorag.services import Services

__all__ = ["show_search"]


async def show_search(
    console: Console, services: Services, caller: Caller, query: str, *, limit: int, author: str | None
) -> None:
    """Print the best passages for *query*."""
    answer = await services.search.passages(caller, query, SearchFilters(author=author), limit)
    for warning in answer.warnings:
        console.print(f"[yellow]{escape(warning)}[/]")
    if not answer.hits:
        console.print("Nothing found. Is the library empty? `philorag ingest FOLDER` fills it.")
    for number, hit in enumerate(answer.hits, start=1):
        _show(console, number, hit)


def _show(console: Console, number: int, hit: Hit) -> None:
    document = hit.passage.document
    console.print(Text.assemble((f"{number}. ", "bold"), (cite(hit.passage), "bold cyan")))
    console.print(Padding(Text(hit.passage.text), (0, 0, 0, 3)))
    legs = " + ".join(hit.matched_by) or "none"
    where = document.path or document.source_uri
    console.print(Text(f"   score {hit.score:.2f} ({legs}) · {where} · document {document.id}\n", style="dim"))
