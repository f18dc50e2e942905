"""What the database itself says, past the gateway and its row security."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import asyncpg

from philorag.storage.embedded import EmbeddedPostgres

__all__ = ["Ask", "owner_of"]

Ask = Callable[..., Awaitable[list[Any]]]


def owner_of(data_dir: Path) -> Ask:
    """A function that runs one statement as the owner of the running embedded database and gives its rows."""
    with EmbeddedPostgres(data_dir / "postgres") as server:
        parameters = asdict(server.start())

    async def ask(statement: str, *arguments: Any) -> list[Any]:
        connection = await asyncpg.connect(**parameters, timeout=20)
        try:
            rows: list[Any] = await connection.fetch(statement, *arguments)
            return rows
        finally:
            await connection.close()

    return ask
