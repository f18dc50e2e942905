"""The gateway over HTTP, to this machine alone: MCP at `/mcp`, stateless, in JSON, and a sign of life at `/healthz`."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from fastmcp.server.http import StreamableHTTPASGIApp
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from philorag import __version__
from philorag.errors import ConfigurationError, PhiloragError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from fastmcp import FastMCP
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from philorag.gateway import Gateway

__all__ = ["PATH", "Limits", "listen", "serve"]

PATH = "/mcp"
_BACKLOG = 128
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a client may ask of the server, in bytes and seconds.

    A call of 32 MB, where the contract counts a vector's number as 4 bytes, is about three times that as JSON. A body
    whose length isn't declared must be held to be measured, so it may have less.
    """

    body: int = 96_000_000
    undeclared_body: int = 4_000_000
    arrival: float = 30.0
    shutdown: int = 5


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one.

    Raises `ConfigurationError` for a host that other machines can reach, and for an address that can't be had.
    """
    address = _loopback(host)
    try:
        return _bound(address, port)
    except OverflowError as error:
        raise ConfigurationError(f"A port is at most 65535, not {port}.", argument="PHILORAG_HTTP_PORT") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"Port {port} of {host} is in use, perhaps by another philorag-mcp: "
                "stop it, or choose another with --port or PHILORAG_HTTP_PORT.",
                argument="PHILORAG_HTTP_PORT",
            ) from error
        raise ConfigurationError(
            f"Can't listen at {host}, port {port}: {error.strerror or error}.", argument="PHILORAG_HTTP_HOST"
        ) from error


def _loopback(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise ConfigurationError(
            f"The host {host} is not this machine's own: without tokens anybody who reaches the port could read and "
            "change the libraries. Use 127.0.0.1, ::1 or localhost in --host or PHILORAG_HTTP_HOST.",
            argument="PHILORAG_HTTP_HOST",
        )
    return address


def _bound(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> socket.socket:
    family = socket.AF_INET6 if isinstance(address, ipaddress.IPv6Address) else socket.AF_INET
    # asyncio turns off Nagle's algorithm only where the protocol is named, as socket.create_server doesn't: an answer,
    # whose head and body are two writes, would wait 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


async def serve(server: FastMCP[Any], gateway: Gateway, listener: socket.socket, limits: Limits | None = None) -> None:
    """Serve at *listener* until SIGTERM or SIGINT; then finish what runs, within the limit, and close the gateway."""
    limits = limits or Limits()
    host, port, *_ = listener.getsockname()
    config = uvicorn.Config(
        _application(server, gateway, limits),
        http=_patience(limits.arrival),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=limits.shutdown,
    )
    _LOG.info("Serving MCP at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, PATH)
    try:
        await _Server(config).serve([listener])
    finally:
        # The lifespan has closed it, unless a second SIGINT cut that short.
        await gateway.close()


class _Server(uvicorn.Server):
    """Ends with 0: uvicorn would send itself the signal again, and with it the process would die."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self.handle_exit) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def _application(server: FastMCP[Any], gateway: Gateway, limits: Limits) -> Starlette:
    server.custom_route("/healthz", methods=["GET"])(_health)
    app = server.http_app(
        path=PATH,
        json_response=True,
        stateless_http=True,
        host_origin_protection=True,
        middleware=[Middleware(_Bounds, limits=limits)],
    )
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[Any]:
        async with inner(application) as state:
            _raise_sdk_limit(app, limits)
            await _answer_schemas_at_once(server)
            opening = asyncio.create_task(_open(gateway))
            try:
                yield state
            finally:
                opening.cancel()

    app.router.lifespan_context = lifespan
    return app


async def _health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok", "version": __version__})


async def _open(gateway: Gateway) -> None:
    """Open the services, and say in the log how it went: nobody may ask for a while."""
    try:
        await gateway.services()
    except PhiloragError as error:
        _LOG.warning("The services don't open, the next call tries again: %s", error.message)
    except Exception:  # noqa: BLE001
        # A bug; every call will meet it again and answer INTERNAL_ERROR.
        _LOG.exception("The services don't open")
    else:
        _LOG.info("The services are open")


def _raise_sdk_limit(app: Starlette, limits: Limits) -> None:
    """The SDK's own limit is 4 MiB, and fastmcp (4.1, 4.2) has no argument for it; `_Bounds` refuses before it."""
    for route in app.routes:
        if isinstance(route, Route) and isinstance(route.endpoint, StreamableHTTPASGIApp):
            manager: Any = route.endpoint.session_manager
            manager.asgi_app.max_body_size = limits.body


async def _answer_schemas_at_once(server: FastMCP[Any]) -> None:
    """Give the SDK every tool's input schema, against which it checks `Mcp-Param-*` headers.

    Without them mcp 2.3 lists all tools at every call of the 2026-07-28 protocol, which makes it several times as
    long. fastmcp before 4.2 doesn't set the hook; from 4.2 on this function has nothing to do and can go.
    """
    low_level = server._mcp_server  # noqa: SLF001 - there is no public way to it
    if low_level.get_tool_input_schema is None:
        low_level.get_tool_input_schema = {tool.name: tool.parameters for tool in await server.list_tools()}.get


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Gone(Exception):
    """The client left before its request had arrived."""


class _Bounds:
    """Refuses a body that is too large or too slow, before anybody holds it."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, _Arriving(scope, receive, self._limits), watched)
        except _Gone:
            return
        except _Refused as refused:
            answer = _error(refused.status, INVALID_REQUEST, refused.message)
        except asyncio.CancelledError:
            if started:
                raise
            answer = _error(503, INTERNAL_ERROR, "The gateway is shutting down. Ask again when it is back.")
        else:
            return
        await answer(scope, receive, send)


class _Arriving:
    """The `receive` of one request, until its body has arrived within the limits.

    Raises `_Refused` or `_Gone`.
    """

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), None)
        self._receive = receive
        self._limits = limits
        self._largest = limits.undeclared_body if declared is None else limits.body
        self._declared = declared is not None
        self._size = 0
        self._arrived = False
        self._deadline = asyncio.get_running_loop().time() + limits.arrival
        # h11 has refused a length that is no number.
        self._check(int(declared or 0))

    async def __call__(self) -> Message:
        if self._arrived:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            seconds = f"{self._limits.arrival:g}"
            raise _Refused(408, f"The request didn't arrive within {seconds} seconds. Send it again.") from None
        if message["type"] == "http.disconnect":
            raise _Gone
        self._size += len(message.get("body", b""))
        self._check(self._size)
        self._arrived = not message.get("more_body", False)
        return message

    def _check(self, size: int) -> None:
        if size > self._largest:
            hint = "Send less at once." if self._declared else "Send less at once, or a Content-Length."
            raise _Refused(413, f"The request is too large: a body may have {self._largest} bytes. {hint}")


def _error(status: int, code: int, message: str) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, status)


class _Patient(H11Protocol):
    """uvicorn's protocol, but a connection whose request doesn't arrive within *patience* seconds is closed.

    uvicorn itself waits for ever for the rest of a request line or header, and takes in the rest of a body that was
    refused for ever too. `_Bounds` answers the one whose body is late.
    """

    patience: float
    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}:
            self._forget()
        elif self._due is None:
            self._due = self.loop.call_later(self.patience, self._give_up)

    def _forget(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _give_up(self) -> None:
        self._due = None
        if self.conn.their_state is h11.SEND_BODY and not self.cycle.response_complete:
            self._expect()
        else:
            self.timeout_keep_alive_handler()


def _patience(seconds: float) -> type[_Patient]:
    class Patient(_Patient):
        patience = seconds

    return Patient
