"""Toolset `gateway`: what runs here. Always on."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from philorag import __version__
from philorag.errors import PhiloragError
from philorag.gateway import Gateway
from philorag.plugins import CurrentToolContext, LoadedPlugin, Plugin, Registrar, ToolContext

__all__ = ["plugin"]


class Store(BaseModel):
    kind: Literal["embedded", "external"]
    state: Literal["ready", "unavailable"]
    problem: str | None = None
    server_version: str | None = None
    schema_revision: str | None = None
    extensions: dict[str, str] = {}
    row_security: bool | None = None


class Space(BaseModel):
    provider: str
    model: str
    revision: str
    dimensions: int


class PluginState(BaseModel):
    name: str
    version: str
    distribution: str
    toolset: str
    tools: list[str]
    problem: str | None


class GatewayStatus(BaseModel):
    version: str
    store: Store
    embedding_space: Space | None
    lexical_engine: str
    library: str
    plugins: list[PluginState]
    queue_depth: int
    sources: dict[str, str]


async def gateway_status(context: ToolContext = CurrentToolContext()) -> GatewayStatus:
    """What this gateway is and whether it works: version, store, embedding model, library, plugins."""
    settings = context.gateway.settings
    store = Store(kind="embedded" if settings.uses_embedded_database else "external", state="unavailable")
    space, running = None, 0
    try:
        services, caller = await context.services(), await context.caller()
        identity = services.embedder.space
        space = Space(
            provider=identity.provider,
            model=identity.model,
            revision=identity.revision,
            dimensions=identity.dimensions,
        )
        status = await services.database.status()
        async with services.database.unit_of_work(caller) as work:
            running = await work.jobs.running()
    except PhiloragError as error:
        store.problem = f"{error.code}: {error.message}"
    else:
        store = Store(
            kind=status.kind,
            state="ready",
            server_version=status.server_version,
            schema_revision=status.schema_revision,
            extensions=status.extensions,
            row_security=status.row_security,
        )
    return GatewayStatus(
        version=__version__,
        store=store,
        embedding_space=space,
        lexical_engine="BM25 over postings",
        library=settings.library,
        plugins=[_plugin_state(loaded, context.gateway) for loaded in context.gateway.plugins],
        queue_depth=running,
        sources={},
    )


def _plugin_state(loaded: LoadedPlugin, gateway: Gateway) -> PluginState:
    name = loaded.plugin.name if loaded.plugin is not None else loaded.toolset
    return PluginState(
        name=name,
        version=loaded.version,
        distribution=loaded.distribution,
        toolset=loaded.toolset,
        tools=list(loaded.tools),
        problem=loaded.problem or gateway.start_problems.get(name),
    )


def register(registrar: Registrar) -> None:
    registrar.tool(title="Gateway status")(gateway_status)


plugin = Plugin("gateway", register)
