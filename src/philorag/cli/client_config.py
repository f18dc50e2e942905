"""`philorag client-config`: what to paste into Claude Desktop and VS Code so that they use this library."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from philorag.settings import variable_names

if TYPE_CHECKING:
    from rich.console import Console

    from philorag.settings import Settings

__all__ = ["server_entry", "show_client_config"]

_SECRET = {"database_url", "migrate_url", "pg_password"}


def server_entry(settings: Settings) -> dict[str, Any]:
    """How a client starts this gateway: its command, and what the environment set here, but no secret."""
    command = Path(sys.executable).parent / ("philorag-mcp.exe" if os.name == "nt" else "philorag-mcp")
    environment = {
        names[0]: str(getattr(settings, field))
        for field, names in variable_names().items()
        if field not in _SECRET and any(os.environ.get(name) for name in names)
    }
    environment |= {} if settings.library == "local" else {"PHILORAG_LIBRARY": settings.library}
    return {"command": str(command), "args": [], **({"env": environment} if environment else {})}


def show_client_config(console: Console, settings: Settings) -> None:
    """Print both configurations as JSON."""
    entry = server_entry(settings)
    for name, where, config in (
        ("Claude Desktop", "claude_desktop_config.json", {"mcpServers": {"philorag": entry}}),
        ("VS Code", ".vscode/mcp.json", {"servers": {"philorag": {"type": "stdio", **entry}}}),
    ):
        console.print(f"[bold]{name}[/] ({where}):")
        console.print(json.dumps(config, indent=2, ensure_ascii=False), markup=False, soft_wrap=True)
