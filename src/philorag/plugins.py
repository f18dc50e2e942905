"""Tool plugins: what one looks like, how they are found, and how a broken one is kept from breaking the others."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from fastmcp.dependencies import CurrentContext, Depends
from fastmcp.server.context import Context
from fastmcp.server.providers import LocalProvider
from mcp_types import ToolAnnotations
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from philorag.errors import ConfigurationError, reason
from philorag.wire import ToolFailure

if TYPE_CHECKING:
    from philorag.gateway import Gateway
    from philorag.model import Caller
    from philorag.services import Services
    from philorag.settings import Settings

__all__ = [
    "ALWAYS_ON",
    "GROUP",
    "CurrentToolContext",
    "LoadedPlugin",
    "Plugin",
    "Registrar",
    "ToolContext",
    "ToolPlugin",
    "discover",
    "load_plugins",
]

GROUP = "philorag.tools"
ALWAYS_ON = "gateway"
_OURS = "philorag"
_LOG = logging.getLogger(__name__)

ToolFunction = TypeVar("ToolFunction", bound=Callable[..., Awaitable[Any]])


class ToolContext:
    """What a tool gets of the gateway during one call."""

    def __init__(self, gateway: Gateway, context: Context) -> None:
        self.gateway = gateway
        self._context = context

    async def services(self) -> Services:
        """The services, once they are open: the first call waits for the database and the model.

        Raises what kept them from opening, such as `DatabaseUnavailable`.
        """
        return await self.gateway.services()

    async def caller(self) -> Caller:
        """Who calls, and the library that the call may touch."""
        return await self.gateway.caller()

    async def report_progress(self, done: float, total: float, message: str) -> None:
        """Tell a client that asked for it how far the work is."""
        await self._context.report_progress(done, total, message)


def _tool_context(context: Context = CurrentContext()) -> ToolContext:  # noqa: B008 - FastMCP's way to inject
    return ToolContext(context.lifespan_context["gateway"], context)


def CurrentToolContext() -> ToolContext:  # noqa: N802 - reads as a type where it is used, like FastMCP's CurrentContext
    """The default value of a tool's `ToolContext` parameter; clients never see that parameter."""
    return Depends(_tool_context)


class Registrar:
    """What a plugin registers its tools with: the only part of the server that it touches."""

    def __init__(self, *, read_only: bool = False, settings: Any = None) -> None:
        self.settings = settings
        self.provider = LocalProvider(on_duplicate="error")
        self.tools: list[str] = []
        self.with_status: set[str] = set()
        self._read_only = read_only

    def tool(
        self,
        *,
        title: str,
        writes: bool = False,
        destroys: bool = False,
        idempotent: bool = False,
        open_world: bool = False,
        status_in_errors: bool = False,
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Offer an async function as the tool of its name.

        *writes*, *destroys* (overwrites or removes what was there), *idempotent* (twice is as once) and *open_world*
        (reaches outside the library) become the annotations that clients see. *status_in_errors* adds the members
        `status` and `error_type` to its errors, as one of the older servers had them.
        """

        def register(function: ToolFunction) -> ToolFunction:
            if writes and self._read_only:
                return function
            annotations = ToolAnnotations(
                title=title,
                read_only_hint=not writes,
                destructive_hint=destroys,
                idempotent_hint=idempotent or not writes,
                open_world_hint=open_world,
            )
            self.provider.tool(_guarded(function), title=title, annotations=annotations)
            self.tools.append(function.__name__)
            if status_in_errors:
                self.with_status.add(function.__name__)
            return function

        return register


def _guarded(function: ToolFunction) -> ToolFunction:
    """*function* with every failure as `ToolFailure`, which the server turns into the contract's JSON."""
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"The tool {function.__name__} must be an async function")

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except (Exception, SystemExit) as error:
            # The one place where a bug in a tool becomes INTERNAL_ERROR instead of a traceback for the client.
            raise ToolFailure(error) from error

    return call  # type: ignore[return-value]  # `wraps` keeps the signature


@runtime_checkable
class ToolPlugin(Protocol):
    """What an entry point of the group `philorag.tools` must load: the entry point's name is the toolset."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> type[BaseSettings] | None:
        """The plugin's own settings, with the prefix `PHILORAG_PLUGIN_<NAME>_`; None for none."""

    def register(self, registrar: Registrar) -> None: ...

    def start(self, services: Services, /) -> Awaitable[None]:
        """Called once, when the services are open."""

    def stop(self) -> Awaitable[None]:
        """Called once, before the services close."""


async def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True)
class Plugin:
    """A `ToolPlugin` made of functions: most plugins need no class of their own."""

    name: str
    register: Callable[[Registrar], None]
    settings: type[BaseSettings] | None = None
    start: Callable[[Services], Awaitable[None]] = _nothing
    stop: Callable[[], Awaitable[None]] = _nothing


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin that was found, with its tools or with the *problem* that keeps it out."""

    toolset: str
    distribution: str
    version: str
    tools: tuple[str, ...] = ()
    problem: str | None = None
    plugin: ToolPlugin | None = field(default=None, repr=False)
    registrar: Registrar | None = field(default=None, repr=False)


def discover() -> list[EntryPoint]:
    """Every entry point of the group, the built-in ones first; none is imported."""

    def key(point: EntryPoint) -> tuple[bool, str, str]:
        return _distribution(point) != _OURS, point.name, _distribution(point)

    return sorted(entry_points(group=GROUP), key=key)


def load_plugins(settings: Settings, points: Sequence[EntryPoint] | None = None) -> list[LoadedPlugin]:
    """Import, configure and register every enabled plugin.

    One that fails at any step is left out, with its reason. Raises `ConfigurationError` for an unknown toolset.
    """
    points = discover() if points is None else points
    _refuse_unknown(settings, {point.name for point in points})
    loaded: list[LoadedPlugin] = []
    for point in points:
        if _enabled(point.name, settings):
            one = _load(point, settings, loaded)
            if one.problem is not None:
                _LOG.warning("The plugin %s (%s) is left out: %s", one.toolset, one.distribution, one.problem)
            loaded.append(one)
    return loaded


def _load(point: EntryPoint, settings: Settings, before: Iterable[LoadedPlugin]) -> LoadedPlugin:
    version = point.dist.version if point.dist else "?"
    found = functools.partial(LoadedPlugin, point.name, _distribution(point), version)
    try:
        plugin, registrar = _registered(point, settings)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        # A plugin is somebody else's code: whatever it raises must not stop the gateway.
        _LOG.debug("Loading %s failed", point.value, exc_info=error)
        return found(problem=_reason(error))
    for other in before:
        if other.problem is None and (clash := set(other.tools) & set(registrar.tools)):
            return found(problem=f"its tool {', '.join(sorted(clash))} is already offered by {other.distribution}")
        if other.problem is None and other.toolset == point.name:
            return found(problem=f"the toolset {point.name} is already provided by {other.distribution}")
    return found(tools=tuple(registrar.tools), plugin=plugin, registrar=registrar)


def _registered(point: EntryPoint, settings: Settings) -> tuple[ToolPlugin, Registrar]:
    plugin = point.load()
    if not isinstance(plugin, ToolPlugin):
        raise TypeError(f"{point.value} is not a ToolPlugin: it needs name, settings, register, start and stop")
    own = plugin.settings() if plugin.settings is not None else None
    registrar = Registrar(read_only=settings.read_only, settings=own)
    plugin.register(registrar)
    return plugin, registrar


def _reason(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"its settings are wrong: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return reason(error)


def _refuse_unknown(settings: Settings, known: set[str]) -> None:
    unknown = [name for name in settings.toolsets or () if name not in known]
    if unknown:
        raise ConfigurationError(
            f"PHILORAG_TOOLSETS names {', '.join(unknown)}, which no installed plugin provides. "
            f"Known toolsets: {', '.join(sorted(known))}.",
            argument="PHILORAG_TOOLSETS",
        )
    for name in settings.plugins_disabled:
        if name not in known:
            _LOG.warning("PHILORAG_PLUGINS_DISABLED names %s, which is not installed", name)


def _enabled(name: str, settings: Settings) -> bool:
    if name == ALWAYS_ON:
        return True
    return name not in settings.plugins_disabled and (settings.toolsets is None or name in settings.toolsets)


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "?"
