"""The commands. Each opens the services, calls one of them, and shows what came of it."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, Parameter, validators
from rich.console import Console

from philorag import __version__
from philorag.errors import InvalidInput, PhiloragError
from philorag.settings import load_settings
from philorag.telemetry import configure_logging

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from philorag.model import Caller
    from philorag.services import Services
    from philorag.settings import Settings

__all__ = ["app", "run"]

app = App(
    name="philorag",
    version=__version__,
    help="A library of philosophical texts: ingest, search, and serve it to MCP clients (see philorag-mcp).",
)
database = App(name="db", help="The database's schema.")
app.command(database)
output = Console(highlight=False)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options that every command takes."""

    env_file: Annotated[Path | None, Parameter(help="Read settings from this file.")] = None
    library: Annotated[str | None, Parameter(help="Use this library instead of the configured one.")] = None

    def settings(self) -> Settings:
        if self.library is not None:
            os.environ["PHILORAG_LIBRARY"] = self.library
        settings = load_settings(self.env_file)
        configure_logging(settings)
        return settings


DEFAULTS = Common()
# Every number of so many digits is a possible id; a longer one can only be a path.
_LONGEST_ID = 18
Outcome = TypeVar("Outcome")


def run() -> None:
    """Run the command that the arguments name."""
    try:
        app()
    except PhiloragError as error:
        sys.exit(f"philorag: {error.message}")
    except KeyboardInterrupt:
        sys.exit(130)


@app.command
def ingest(path: Path, *, force: bool = False, common: Common = DEFAULTS) -> None:
    """Read a file or a folder into the library.

    Parameters
    ----------
    path: The file or folder (Markdown, plain text, HTML, EPUB, PDF). Nothing is copied.
    force: Read unchanged files again.
    """
    from philorag.cli.ingesting import show_ingest  # noqa: PLC0415 - each command loads what it needs

    if not path.exists():
        raise InvalidInput(f"{path} does not exist. Give the path of a file or folder.", argument="path")

    async def work(services: Services, caller: Caller) -> int:
        return await show_ingest(output, services, caller, path, force=force)

    sys.exit(_with_services(common, work))


@app.command
def search(
    query: str,
    *,
    limit: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=100))] = 5,
    author: str | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Find passages by meaning and by words.

    Parameters
    ----------
    query: A question or some words.
    limit: How many passages to show, 1 to 100.
    author: Only in works of this author.
    """
    from philorag.cli.passages import show_search  # noqa: PLC0415 - each command loads what it needs

    async def work(services: Services, caller: Caller) -> None:
        await show_search(output, services, caller, query, limit=limit, author=author)

    _with_services(common, work)


@app.command
def remove(target: str, *, common: Common = DEFAULTS) -> None:
    """Take a document out of the library; the file it was read from stays.

    Parameters
    ----------
    target: The document's id, or its path as `philorag search` shows it.
    """

    async def work(services: Services, caller: Caller) -> None:
        number = int(target) if target.isdecimal() and len(target) <= _LONGEST_ID else None
        path = target if number is None else None
        document = await services.documents.remove(caller, document_id=number, path=path)
        output.print(f"Removed {document.title or document.path} (document {document.id}).", markup=False)

    _with_services(common, work)


@app.command
def doctor(*, common: Common = DEFAULTS) -> None:
    """Show what is configured, what works, and what to do about what doesn't."""
    from philorag.cli.doctor import examine  # noqa: PLC0415 - each command loads what it needs

    sys.exit(asyncio.run(examine(output, common.settings())))


@app.command
def plugins(*, common: Common = DEFAULTS) -> None:
    """List the tool plugins that are installed, with their tools."""
    from philorag.cli.doctor import show_plugins  # noqa: PLC0415 - each command loads what it needs

    show_plugins(output, common.settings())


@app.command(name="client-config")
def client_config(*, common: Common = DEFAULTS) -> None:
    """Print the configuration for Claude Desktop and VS Code."""
    from philorag.cli.client_config import show_client_config  # noqa: PLC0415 - each command loads what it needs

    show_client_config(output, common.settings())


@database.command
def upgrade(*, common: Common = DEFAULTS) -> None:
    """Bring the database to this release's schema. The gateway does the same when it starts."""
    from philorag.storage.database import Database  # noqa: PLC0415 - each command loads what it needs

    async def migrate() -> None:
        store = await Database.open(common.settings())
        try:
            status = await store.status()
        finally:
            await store.close()
        output.print(f"The {status.kind} database is at schema {status.schema_revision}.")

    asyncio.run(migrate())


def _with_services(common: Common, work: Callable[[Services, Caller], Awaitable[Outcome]]) -> Outcome:
    async def opened() -> Outcome:
        from philorag.services import Services  # noqa: PLC0415 - a second of imports that --help doesn't need

        async with await Services.open(common.settings()) as services:
            return await work(services, await services.local_caller())

    return asyncio.run(opened())
