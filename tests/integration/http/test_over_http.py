"""`philorag-mcp --http` as its clients, its operator and an attacker on the same machine see it."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from http.client import HTTPResponse
from typing import Any

import httpx2
import psutil
import pytest
from fastmcp import Client
from tests.integration.http.http_process import PROGRAM, environment_with, over_http

from philorag.storage.embedded import EmbeddedPostgres
from philorag.testing import ToolCallFailed, call

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HUNDRED_MEGABYTES = 100_000_000
HOLD = """
import asyncio
from pydantic import BaseModel
from philorag.plugins import Plugin

print("noise at import")

class Answer(BaseModel):
    done: bool = True

async def hold(port: int) -> Answer:
    '''Wait until the test says so.'''
    print("noise in a tool")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.read(1)
    writer.close()
    return Answer()

plugin = Plugin("hold", lambda registrar: registrar.tool(title="t")(hold) and None)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with an installed plugin in it."""
    folder = tmp_path_factory.mktemp("http")
    (folder / "hold_plugin.py").write_text(HOLD)
    information = folder / "hold_plugin-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: hold_plugin\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[philorag.tools]\nhold = hold_plugin:plugin\n")
    return folder


@pytest.fixture(scope="module")
def server(data_dir, folder):
    settings = {
        "PHILORAG_DATA_DIR": str(data_dir),
        "PHILORAG_LIBRARY": "over-http",
        "PHILORAG_LIBRARY_DIR": str(folder / "library"),
        "PYTHONPATH": str(folder),
    }
    with over_http(folder, settings) as server:
        yield server
        assert server.end() == 0
        assert not [line for line in server.log if " ERROR " in line or "Traceback" in line]


@pytest.fixture(params=["auto", "legacy"])
async def client(request, server):
    """A client of each protocol era."""
    async with Client(server.url, mode=request.param) as client:
        yield client


@pytest.fixture
def gate():
    """Where the tool `hold` reports, and waits for its release."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


async def held(gate: Any) -> socket.socket:
    """The connection of the next call of `hold`."""
    connection, _ = await asyncio.get_running_loop().sock_accept(gate)
    return connection


def test_the_services_open_at_start(server):
    """Nobody need ask for the tools: over HTTP database and model are opened when the server starts."""
    assert server.url
    assert server.wait_for("The services are open")


async def test_both_eras_list_and_call(client):
    """A client of either era gets the tools and a tool's structured answer."""
    assert {"philograph_search", "hold"} <= {tool.name for tool in await client.list_tools()}
    status = await call(client, "gateway_status")
    assert (status["store"]["state"], status["library"]) == ("ready", "over-http")


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("list_documents", {"limit": 0}, "INVALID_INPUT"),
        ("no_such_tool", {}, "INVALID_INPUT"),
        ("get_document", {"document_id": "999999999"}, "DOCUMENT_NOT_FOUND"),
    ],
)
async def test_failures_have_the_contract_s_shape(client, tool, arguments, code):
    """A failure is a tool error with the contract's JSON, over HTTP as over stdio."""
    with pytest.raises(ToolCallFailed) as failed:
        await call(client, tool, **arguments)
    assert failed.value.error["code"] == code
    assert set(failed.value.error) == {"code", "message", "details"}
    assert failed.value.payload["success"] is False


async def test_a_call_of_32_megabytes_passes(client):
    """A body that the contract allows reaches its tool."""
    chunks = [{"chunk_text": "a" * 100_000, "chunk_index": i, "embedding": [0.1]} for i in range(319)]
    with pytest.raises(ToolCallFailed) as failed:
        await call(client, "batch_insert_chunks", document_id=999999999, chunks=chunks)
    assert failed.value.error["code"] == "DOCUMENT_NOT_FOUND"


async def test_two_clients_are_served_at_once(server, gate):
    """A call that takes long keeps nobody else's waiting, in neither era."""
    async with Client(server.url, mode="auto") as one, Client(server.url, mode="legacy") as other:
        calls = [asyncio.create_task(call(each, "hold", port=gate.getsockname()[1])) for each in (one, other)]
        connections = [await held(gate), await held(gate)]
        assert await call(one, "list_documents")
        assert not any(each.done() for each in calls)
        for connection in connections:
            connection.close()
        assert await asyncio.gather(*calls) == [{"done": True}] * 2


def test_a_sign_of_life(server):
    """GET /healthz says that the server lives, and its version, and nothing else."""
    answer = httpx2.get(f"{server.base}/healthz")
    assert (answer.status_code, set(answer.json())) == (200, {"status", "version"})
    assert answer.json()["status"] == "ok"


@pytest.mark.parametrize("path", ["/mcp", "/healthz"])
def test_a_foreign_host_is_misdirected(server, path):
    """A name that somebody pointed at this machine is answered with 421: no page can rebind its own name to us."""
    answer = httpx2.post(f"{server.base}{path}", json=LIST, headers={**HEADERS, "Host": "evil.example"})
    assert answer.status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost.evil.example"])
def test_a_foreign_origin_is_refused(server, origin):
    """A web page from elsewhere is answered with 403."""
    answer = httpx2.post(server.url, json=LIST, headers={**HEADERS, "Origin": origin})
    assert answer.status_code == 403


def test_a_body_of_100_megabytes_is_refused_before_it_is_sent(server):
    """The declared length is enough for a 413 that says what is allowed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {HUNDRED_MEGABYTES}\r\n\r\n"
        connection.sendall(head.encode())
        with HTTPResponse(connection) as answer:
            answer.begin()
            assert answer.status == 413
            assert json.load(answer)["error"]["message"].startswith("The request is too large")


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_100_megabytes_is_not_held(server, declared):
    """Sent all the same, with or without a length, it is refused and takes no memory."""
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    part = b" " * 1_000_000
    headers = {**HEADERS, "Content-Length": str(HUNDRED_MEGABYTES)} if declared else HEADERS
    parts = (part for _ in range(HUNDRED_MEGABYTES // len(part)))
    answer = httpx2.post(server.url, content=parts, headers=headers)
    assert answer.status_code == 413
    assert process.memory_info().rss - before < 40_000_000


async def test_half_a_request_blocks_nobody(server):
    """Clients that stop within the head or the body are waited for, while the others are served."""
    halves = [b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"]
    with ExitStack() as stack:
        for half in halves * 20:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(half)
        async with Client(server.url) as client:
            assert await call(client, "list_documents")


@pytest.mark.parametrize("body", [b"", b"{nonsense", b"\xff\xfe", b"[]", b'{"jsonrpc":"2.0"}', b"[" * 100_000])
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28", "1999-01-01"])
def test_a_body_that_is_no_message_is_a_bad_request(server, body, version):
    """What isn't a JSON-RPC message is answered with 400 and a JSON-RPC error."""
    answer = httpx2.post(server.url, content=body, headers={**HEADERS, "MCP-Protocol-Version": version})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in {-32700, -32600, -32602}


async def test_without_a_database_it_lives_and_says_so(tmp_path):
    """With a database that can't be reached the server starts, is healthy, tells its log and answers calls so."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"postgresql://u:hunter2@127.0.0.1:{unused.getsockname()[1]}/d"
    with over_http(tmp_path, {"DATABASE_URL": url, "PHILORAG_DATA_DIR": str(tmp_path)}) as server:
        assert httpx2.get(f"{server.base}/healthz").status_code == 200
        server.wait_for("The services don't open, the next call tries again: ")
        async with Client(server.url) as client:
            with pytest.raises(ToolCallFailed) as failed:
                await call(client, "list_documents")
        assert failed.value.error["code"] == "DATABASE_UNAVAILABLE"
        assert server.end() == 0
        assert "hunter2" not in "".join(server.log)


async def test_a_signal_lets_calls_finish_and_the_last_process_stops_the_database(folder, tmp_path, gate):
    """SIGTERM and SIGINT end with 0 after the running call's answer; the last process to leave stops the database."""
    database = EmbeddedPostgres(tmp_path / "data" / "postgres")
    settings = {
        "PHILORAG_DATA_DIR": str(tmp_path / "data"),
        "PHILORAG_TOOLSETS": "hold,documents",
        "PYTHONPATH": str(folder),
    }
    try:
        with over_http(folder, settings) as first, over_http(folder, settings) as second:
            for server, number in ((first, signal.SIGTERM), (second, signal.SIGINT)):
                async with Client(server.url) as client:
                    assert (await call(client, "list_documents"))["total"] == 0
                    running = asyncio.create_task(call(client, "hold", port=gate.getsockname()[1]))
                    connection = await held(gate)
                    ended = asyncio.create_task(asyncio.to_thread(server.end, number))
                    await _refusal(server.port)
                    connection.close()
                    assert await running == {"done": True}
                assert await ended == 0
                assert (database.pid is None) == (server is second)
    finally:
        shutil.rmtree(database.storage, ignore_errors=True)


async def _refusal(port: Any) -> None:
    """Return when *port* takes no connection any more: the shutdown has begun."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        writer.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "philorag-mcp: The host 0.0.0.0 is not this machine's own: "),
        (["--port", "{taken}"], "philorag-mcp: Port {taken} of 127.0.0.1 is in use, "),
    ],
)
def test_a_start_that_fails_says_one_sentence(tmp_path, arguments, sentence):
    """A host that others can reach, or a port in use, ends the process with 1 and one sentence on standard error."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ended = subprocess.run(
            [PROGRAM, "--http", *(argument.format(taken=taken) for argument in arguments)],
            env=environment_with({"PHILORAG_DATA_DIR": str(tmp_path)}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
        )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(sentence.format(taken=taken))
    assert ended.stderr.count("\n") == 1
