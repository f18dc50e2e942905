"""The running gateway: its plugins, and its services, which open in the background."""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import TYPE_CHECKING

from philorag.errors import reason

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
        self._closing: asyncio.Task[None] | None = None
        self._caller: Caller | None = None
        self.start_problems: dict[str, str] = {}

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
        """Close what was opened; an opening under way is let finish first, for it can't be cut off halfway.

        A second call waits for the first: the end of input and a signal often come together.
        """
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._opening is None:
            return
        outcome = (await asyncio.gather(self._opening, return_exceptions=True))[0]
        self._opening = self._caller = None
        if isinstance(outcome, BaseException):
            return
        for one in self._active():
            if one.name not in self.start_problems:
                await self._stop(one)
        await outcome.close()

    async def _open(self) -> Services:
        # Importing takes a second of pure computing; in a thread the protocol goes on being answered.
        module = await asyncio.to_thread(importlib.import_module, "philorag.services")
        services: Services = await module.Services.open(self.settings)
        self.start_problems.clear()
        for one in self._active():
            await self._start(one, services)
        return services

    async def _start(self, plugin: ToolPlugin, services: Services) -> None:
        try:
            await plugin.start(services)
        except Exception as error:  # noqa: BLE001
            # Somebody else's code again: its tools will say what they lack, the others work.
            _LOG.exception("The plugin %s failed to start", plugin.name)
            self.start_problems[plugin.name] = f"it failed to start: {reason(error)}"

    async def _stop(self, plugin: ToolPlugin) -> None:
        try:
            await plugin.stop()
        except Exception:  # noqa: BLE001
            # Likewise: the services must close whatever a plugin does.
            _LOG.exception("The plugin %s failed to stop", plugin.name)

    def _active(self) -> list[ToolPlugin]:
        return [loaded.plugin for loaded in self.plugins if loaded.plugin is not None]
