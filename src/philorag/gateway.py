"""The running gateway: its plugins, and its services, which open in the background."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from philorag.model import Caller
    from philorag.plugins import LoadedPlugin, ToolPlugin
    from philorag.services import Services
    from philorag.settings import Settings

__all__ = ["Gateway"]

_LOG = logging.getLogger(__name__)


class Gateway:
    """What the tools of one process share.

    The services open when a client has its list of tools, or at the first call that needs them, so that answering a
    client's first questions waits for neither the database nor the model.
    """

    def __init__(self, settings: Settings, plugins: Sequence[LoadedPlugin]) -> None:
        self.settings = settings
        self.plugins = plugins
        self._opening: asyncio.Task[Services] | None = None
        self._caller: Caller | None = None

    def begin(self) -> None:
        """Open the services in the background, unless they are open or opening. A failed opening is tried again."""
        failed = (
            self._opening is not None
            and self._opening.done()
            and (self._opening.cancelled() or self._opening.exception() is not None)
        )
        if self._opening is None or failed:
            self._opening = asyncio.create_task(self._open())

    async def services(self) -> Services:
        """The services, once they are open. Raises what kept them from opening."""
        self.begin()
        assert self._opening is not None
        return await asyncio.shield(self._opening)

    async def caller(self) -> Caller:
        """The local user in the configured library: over stdio there is nobody else."""
        if self._caller is None:
            self._caller = await (await self.services()).local_caller()
        return self._caller

    async def close(self) -> None:
        """Close what was opened; an opening under way is let finish first, for it can't be cut off halfway."""
        if self._opening is None:
            return
        opening, self._opening = self._opening, None
        outcome = (await asyncio.gather(opening, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):
            return
        for one in self._active():
            await one.stop()
        await outcome.close()

    async def _open(self) -> Services:
        # Importing takes a second of pure computing; in a thread the protocol goes on being answered.
        module = await asyncio.to_thread(importlib.import_module, "philorag.services")
        services: Services = await module.Services.open(self.settings)
        for one in self._active():
            try:
                await one.start(services)
            except Exception:  # noqa: BLE001
                # Somebody else's code again: its tools will say what they lack, the others work.
                _LOG.exception("The plugin %s failed to start", one.name)
        return services

    def _active(self) -> list[ToolPlugin]:
        return [loaded.plugin for loaded in self.plugins if loaded.plugin is not None]
