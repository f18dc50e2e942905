"""Logging. Everything goes to standard error or to the operator's file; standard output belongs to the protocol."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from philorag.settings import Settings

__all__ = ["configure_logging"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(settings: Settings) -> None:
    """Send every log record of this process to the operator's file or to standard error."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if settings.log_file is not None:
        settings.log_file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(settings.log_file, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_FORMAT))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # fastmcp sets up a handler of its own when it is imported.
    theirs = logging.getLogger("fastmcp")
    theirs.handlers.clear()
    theirs.propagate = True
    # At DEBUG `openai` would log the texts that it sends.
    for noisy in ("mcp", "alembic", "sqlalchemy", "fastmcp", "openai", "httpx2", "httpcore2", "uvicorn"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(settings.log_level)))
