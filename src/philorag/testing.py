"""What plugin authors test with: a real gateway with their plugin, on a real database, behind a real client."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fastmcp import Client
from mcp_types import TextContent

from philorag.plugins import GROUP, discover
from philorag.server import build_gateway
from philorag.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["ToolCallFailed", "call", "connected", "entry_point", "temporary_database", "temporary_settings"]


class ToolCallFailed(AssertionError):
    """A tool answered with the contract's error; *error* is its `{"code", "message", "details"}`."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(json.dumps(payload, ensure_ascii=False))
        self.payload = payload
        self.error: dict[str, Any] = payload["error"]


@contextmanager
def temporary_database() -> Iterator[Path]:
    """A data folder with an embedded PostgreSQL of its own, gone afterwards.

    Starting it takes a second or two: share it among tests, and let each take a library of its own with
    `temporary_settings`.
    """
    from philorag.storage.embedded import EmbeddedPostgres  # noqa: PLC0415 - the gateway itself imports it late

    with tempfile.TemporaryDirectory(prefix="philorag-test-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", settings={"fsync": "off"})
        try:
            with server:
                yield Path(folder)
        finally:
            shutil.rmtree(server.storage, ignore_errors=True)


def temporary_settings(data_dir: Path, **settings: Any) -> Settings:
    """Settings with a library that nobody else has, in the database at *data_dir*."""
    defaults = {"library": f"test-{uuid4().hex}", "library_dir": data_dir / uuid4().hex}
    return Settings(**{"data_dir": data_dir, **defaults, **settings})


def entry_point(name: str, value: str) -> EntryPoint:
    """An entry point as an installed package would declare it, such as `("words", "my_package.plugin:plugin")`."""
    return EntryPoint(name=name, value=value, group=GROUP)


@asynccontextmanager
async def connected(settings: Settings, *more: EntryPoint, mode: str = "auto") -> AsyncIterator[Client[Any]]:
    """A client of a gateway with the installed plugins and *more*; *mode* chooses the protocol era as in FastMCP."""
    server = build_gateway(settings, [*discover(), *more])
    async with Client(server, mode=mode) as client:
        yield client


async def call(client: Client[Any], tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's structured answer. Raises `ToolCallFailed` with the contract's error."""
    answer = await client.call_tool(tool, arguments, raise_on_error=False)
    if answer.is_error:
        (block,) = answer.content
        assert isinstance(block, TextContent)
        raise ToolCallFailed(json.loads(block.text))
    structured: dict[str, Any] = answer.structured_content or {}
    return structured
