"""What `make run` does: fill a library from a folder, then ask it questions as any MCP client would."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
EXAMPLES = ROOT / "examples" / "library"
QUESTIONS_TO_EXAMPLES = (
    "With what gesture did Zeno explain the difference between assent and knowledge?",
    "How does Aristotle get from the function of man to the human good?",
    "Warum ist ein falsches Versprechen als allgemeines Naturgesetz nicht denkbar?",
)
QUESTIONS_TO_ANY_LIBRARY = (
    "What is happiness?",
    "How do we know that the future will be like the past?",
    "When may society interfere with the liberty of the individual?",
)
LONGEST_SHOWN = 420
console = Console(highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill a library from a folder and ask it questions over MCP.")
    parser.add_argument("folder", type=Path, help="Markdown, text, HTML, EPUB and PDF files")
    parser.add_argument("questions", nargs="*", help="what to ask (default: three questions)")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if not folder.is_dir():
        sys.exit(f"{chosen.folder} is not a folder. Name one: make run LIBRARY=~/books")
    questions = chosen.questions or (QUESTIONS_TO_EXAMPLES if folder == EXAMPLES else QUESTIONS_TO_ANY_LIBRARY)
    environment = settings_for(folder)
    step(f"Ingesting {chosen.folder} into the library “{environment['PHILORAG_LIBRARY']}”")
    ingested = subprocess.run([BIN / "philorag", "ingest", folder], env=environment, check=False)
    if ingested.returncode:
        sys.exit(ingested.returncode)
    asyncio.run(ask(questions, environment))
    step("To use this library from your own client, add")
    subprocess.run([BIN / "philorag", "client-config"], env=environment, check=True)


def settings_for(folder: Path) -> dict[str, str]:
    """The environment of a library that is named after *folder* and kept inside this checkout."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-._")[:40] or "books"
    # Two folders of one name are two libraries.
    name = "examples" if folder == EXAMPLES else f"{name}-{hashlib.sha256(bytes(folder)).hexdigest()[:6]}"
    return {
        "PHILORAG_DATA_DIR": str(ROOT / ".philorag"),
        "LOG_LEVEL": "WARNING",
        **os.environ,
        "PHILORAG_LIBRARY": name,
        "PHILORAG_SOURCE_DIR": str(folder),
    }


def step(title: str) -> None:
    console.print()
    console.print(Rule(Text(title, style="bold"), align="left"))


async def ask(questions: tuple[str, ...] | list[str], environment: dict[str, str]) -> None:
    """Start the gateway as a client does, and print what it answers."""
    transport = StdioTransport(str(BIN / "philorag-mcp"), [], env=environment)
    async with Client(transport) as client:
        tools = await client.list_tools()
        step(f"Asking philorag-mcp over MCP (stdio, {len(tools)} tools)")
        for question in questions:
            answer = await client.call_tool("philograph_search", {"query": question, "limit": 2})
            console.print(Text(f"\n? {question}", style="bold"))
            for hit in (answer.structured_content or {})["result"]:
                show(hit)


def show(hit: dict[str, Any]) -> None:
    text = hit["text"] if len(hit["text"]) <= LONGEST_SHOWN else f"{hit['text'][:LONGEST_SHOWN].rsplit(' ', 1)[0]} …"
    console.print(Padding(Text(text), (1, 0, 0, 4)))
    found = " + ".join(hit["matched_by"])
    console.print(Padding(Text.assemble("— ", (hit["citation"], "cyan"), (f"  [{found}]", "dim")), (0, 0, 0, 4)))


if __name__ == "__main__":
    main()
