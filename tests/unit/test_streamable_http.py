"""The HTTP transport around any server: what it refuses, how long it waits, how it ends. Real sockets, no process."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastmcp import Client, FastMCP
from fastmcp.server.middleware import Middleware

from philorag import server as program
from philorag.errors import ConfigurationError, DatabaseUnavailable
from philorag.streamable_http import Limits, listen, serve

HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
SHORT = Limits(body=5_000_000, undeclared_body=1000, arrival=0.2, shutdown=1)
HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
    b"MCP-Protocol-Version: 2026-07-28\r\n"
)


class FakeGateway:
    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.closed = 0

    async def services(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        self.closed += 1


class Listings(Middleware):
    count = 0

    async def on_list_tools(self, context, call_next):
        self.count += 1
        return await call_next(context)


class Served:
    def __init__(self) -> None:
        self.server: Any = FastMCP("t")
        self.gateway: Any = FakeGateway()
        self.listings = Listings()
        self.server.add_middleware(self.listings)
        self.entered = asyncio.Event()
        self.listener = listen("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

        @self.server.tool
        async def measure(text: str) -> int:
            return len(text)

        @self.server.tool
        async def wait_for_ever() -> None:
            self.entered.set()
            await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def serving(served: Served) -> AsyncIterator[Served]:
    """*served*, until the block is left or SIGTERM comes."""
    running = asyncio.create_task(serve(served.server, served.gateway, served.listener, SHORT))
    try:
        async with httpx2.AsyncClient() as client:
            await client.get(served.url)
        yield served
    finally:
        if not running.done():
            signal.raise_signal(signal.SIGTERM)
        await running


@pytest.fixture
async def served():
    async with serving(Served()) as served:
        yield served


async def conversation(port: Any, request: bytes) -> bytes:
    """All that the server says to *request*, until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def send_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"400\r\n" + b" " * 1024 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_request_without_an_end_of_its_head_is_given_up(served):
    """The connection is closed when the head doesn't arrive in time, or never begins."""
    assert await conversation(served.port, HEAD) == b""
    assert await conversation(served.port, b"") == b""


async def test_a_body_that_stays_behind_is_answered_and_given_up(served):
    """The rest of a body that doesn't come in time is answered with 408, and the connection closed."""
    answer = await conversation(served.port, HEAD + b"Content-Length: 10\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Send it again" in answer


async def test_the_rest_of_a_refused_body_is_taken_in_only_so_long(served):
    """After its 413 a client that goes on sending for ever is cut off."""
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(ConnectionError):
        await send_for_ever(writer)
    writer.close()


async def test_bodies_have_a_limit_and_without_a_length_a_lower_one(served):
    """A body over the limit is answered with 413, and one that must be held to be measured sooner."""

    async def parts() -> AsyncIterator[bytes]:
        yield b" " * 1001

    async with httpx2.AsyncClient(headers=HEADERS) as client:
        large = await client.post(served.url, content=b" " * 5_000_001)
        undeclared = await client.post(served.url, content=parts())
    assert (large.status_code, undeclared.status_code) == (413, 413)
    assert "5000000 bytes" in large.text
    assert "Content-Length" in undeclared.text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_body_within_the_limit_passes(served, mode):
    """The SDK's own limit of 4 MiB stands in nobody's way."""
    async with Client(served.url, mode=mode) as client:
        assert (await client.call_tool("measure", {"text": "a" * 4_900_000})).data == 4_900_000


async def test_a_call_lists_no_tools(served):
    """The SDK finds the schemas that it checks headers against without listing every tool at every call."""
    async with Client(served.url, mode="auto") as client:
        assert (await client.call_tool("measure", {"text": "abc"})).data == 3
        before = served.listings.count
        for text in ("", "a", "ab"):
            await client.call_tool("measure", {"text": text})
    assert served.listings.count == before


async def test_a_client_that_leaves_is_no_error(served, caplog):
    """A connection that ends within its body leaves no error in the log."""
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(HEAD + b"Content-Length: 10\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with Client(served.url) as client:
        await client.list_tools()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_call_that_outlasts_the_shutdown_is_told(caplog):
    """SIGTERM waits for what runs so long; then its client gets a 503, and the gateway is closed all the same."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait_for_ever", "arguments": {}}}
    async with httpx2.AsyncClient(headers=HEADERS) as client:
        async with serving(Served()) as served:
            answer = asyncio.create_task(client.post(served.url, json=call, timeout=20))
            await served.entered.wait()
        assert (await answer).status_code == 503
    assert "shutting down" in (await answer).json()["error"]["message"]
    assert served.gateway.closed
    assert "Exception in ASGI application" not in caplog.text


@pytest.mark.parametrize(
    ("failure", "said"),
    [(DatabaseUnavailable("Start it.", reason="unreachable"), "Start it."), (ValueError("bug"), "ValueError: bug")],
)
async def test_services_that_do_not_open_are_logged(caplog, failure, said):
    """A server whose services fail to open says why in its log and lives on."""
    served = Served()
    served.gateway.failure = failure
    async with serving(served), Client(served.url) as client:
        assert await client.list_tools()
    assert "The services don't open" in caplog.text
    assert said in caplog.text


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.168.1.5", "10.0.0.1", "example.org", "localhost.evil"])
def test_a_host_that_others_can_reach_is_refused(host):
    """While there are no tokens only loopback addresses are listened at."""
    with pytest.raises(ConfigurationError) as stopped:
        listen(host, 0)
    assert "without tokens" in stopped.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_s_own_addresses_are_taken(host):
    """Loopback addresses and `localhost` are listened at, with answers that wait for no acknowledgement."""
    with listen(host, 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("taken", [True, False])
def test_a_port_that_can_not_be_had_is_refused(taken):
    """A port in use, or one that doesn't exist, is named."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1] if taken else 65536
        with pytest.raises(ConfigurationError) as stopped:
            listen("127.0.0.1", port)
    assert str(port) in stopped.value.message


def test_host_and_port_are_for_http(capsys):
    """Without --http they end the program with how it is used."""
    with pytest.raises(SystemExit) as stopped:
        program.main(["--port", "8000"])
    assert stopped.value.code == 2
    assert "--host and --port need --http" in capsys.readouterr().err
