"""The process as its client sees it: what it writes, when it answers, how it ends."""

import json
import shutil
import signal
import socket
import sys
from contextlib import ExitStack

import pytest
from tests.integration.server.server_process import serving, write_plugin

from philorag.storage.embedded import EmbeddedPostgres

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and sockets")

TOOL = """
from pydantic import BaseModel
from philorag.plugins import CurrentToolContext, Plugin, ToolContext

class Answer(BaseModel):
    done: bool = True

def offering(name, *functions):
    def register(registrar):
        for function in functions:
            registrar.tool(title="t")(function)
    return Plugin(name, register)
"""
NOISY = f"""
import os, subprocess, sys
{TOOL}
CHILD = "import sys; print('noise of a child'); print(repr(sys.stdin.read()))"

def shout():
    print("noise of print")
    sys.stdout.write("noise of write\\n")
    sys.stdout.buffer.write(b"noise of the buffer\\n")
    sys.stdout.flush()
    sys.__stdout__.write("noise of the original\\n")
    sys.__stdout__.flush()
    os.write(1, b"noise of the descriptor\\n")
    subprocess.run([sys.executable, "-c", CHILD], check=True, timeout=60)

shout()

async def make_noise() -> Answer:
    '''Make noise.'''
    shout()
    return Answer()

async def quit_python() -> Answer:
    '''Ask Python to end.'''
    sys.exit(7)

plugin = offering("noisy", make_noise, quit_python)
"""
GATE = f"""
import os, socket, sys
{TOOL}
HEAVY = {{"sqlalchemy", "asyncpg", "numpy", "onnxruntime", "tokenizers", "alembic", "lxml", "selectolax", "openai",
         "psutil", "pypdfium2", "rapidfuzz", "ruamel", "markdown_it", "py3langid", "pgvector"}}
early = HEAVY & set(sys.modules)
assert not early, early

class Gate:
    '''Stops the import of a heavy module until the test lets it pass.'''
    def find_spec(self, name, path=None, target=None):
        if name in HEAVY:
            with socket.socket(socket.AF_UNIX) as test:
                try:
                    test.connect(os.environ["TEST_GATE"])
                    test.sendall(name.encode())
                    test.recv(1)
                except OSError:
                    pass

sys.meta_path.insert(0, Gate())

async def light() -> Answer:
    '''Need nothing.'''
    return Answer()

plugin = offering("gate", light)
"""


@pytest.fixture
def environment(data_dir, tmp_path):
    return {
        "PHILORAG_DATA_DIR": str(data_dir),
        "PHILORAG_LIBRARY_DIR": str(tmp_path / "library"),
        "PYTHONPATH": str(tmp_path),
    }


def test_nothing_but_the_protocol_is_on_standard_output(environment, tmp_path):
    """Whatever a plugin prints, at import or in a tool, by itself or by a child, goes to standard error."""
    write_plugin(tmp_path, "noisy", NOISY)
    with serving(tmp_path, environment) as server:
        server.greet()
        assert server.call("make_noise") == {"done": True}
        assert server.call("quit_python")["error"]["code"] == "INTERNAL_ERROR"
        assert server.call("make_noise") == {"done": True}
        assert server.end() == 0
        log = server.log()
    for source in ("print", "write", "the buffer", "the original", "the descriptor", "a child"):
        assert log.count(f"noise of {source}\n") == 3, source
    assert log.count("''\n") == 3, "a child must not be able to read the client's messages"


def test_first_answers_wait_for_nothing_heavy(environment, tmp_path):
    """initialize and tools/list need no database, model or reader; these load by themselves after the listing."""
    write_plugin(tmp_path, "gate", GATE)
    path = str(tmp_path / "gate.sock")
    with socket.socket(socket.AF_UNIX) as gate, serving(tmp_path, {**environment, "TEST_GATE": path}) as server:
        gate.bind(path)
        gate.listen()
        gate.settimeout(60)
        server.greet()
        assert "light" in server.tools()
        waiting, _ = gate.accept()
        with waiting:
            assert waiting.recv(100)
            gate.close()
        assert server.call("light") == {"done": True}
        assert server.call("gateway_status")["store"]["state"] == "ready"
        assert server.end() == 0


def test_the_last_process_to_leave_stops_the_database(tmp_path):
    """End of input, SIGTERM and SIGINT end with 0 and leave the database to who still uses it; the last stops it."""
    database = EmbeddedPostgres(tmp_path / "data" / "postgres")
    environment = {"PHILORAG_DATA_DIR": str(tmp_path / "data"), "PHILORAG_TOOLSETS": "gateway"}
    try:
        with ExitStack() as stack:
            servers = [stack.enter_context(serving(tmp_path, environment)) for _ in range(3)]
            for server in servers:
                server.greet()
                assert server.call("gateway_status")["store"]["state"] == "ready"
            by_input, by_term, by_int = servers
            by_term.process.send_signal(signal.SIGTERM)
            assert by_term.process.wait() == 0
            by_int.process.send_signal(signal.SIGINT)
            assert by_int.process.wait() == 0
            assert by_input.call("gateway_status")["store"]["state"] == "ready"
            assert database.pid is not None
            assert by_input.end() == 0
            assert database.pid is None
    finally:
        shutil.rmtree(database.storage, ignore_errors=True)


def test_a_workspace_sets_nothing(environment, tmp_path):
    """A `.env` in the working folder reaches neither our settings nor the framework's, even if it is no text."""
    (tmp_path / ".env").write_bytes(b"PHILORAG_NONSENSE=1\nFASTMCP_LOG_LEVEL=\xff\nFASTMCP_STRICT_INPUT_VALIDATION=x\n")
    with serving(tmp_path, {**environment, "FASTMCP_ENABLE_RICH_LOGGING": "true"}) as server:
        server.greet()
        refusal = server.call("list_documents", limit="secret-word", sort_by="title")
        assert refusal["error"]["details"]["argument"] == "limit"
        assert server.end() == 0
        log = server.log()
    assert "Invalid arguments for tool 'list_documents'" in log
    assert all(" WARNING " in line for line in log.splitlines()), log
    assert "secret-word" not in log


def test_lines_that_are_no_message_are_answered(environment, tmp_path):
    """A line that can't be read is answered with its id if it can be made out, and the next one works."""
    with serving(tmp_path, environment) as server:
        server.greet()
        call = '{"jsonrpc":"2.0","id":"a1","method":"tools/call","params":{"name":"get_document","arguments":%s}}'
        cases = [
            ((call % '{"path":"\\ud800"}').encode(), "a1", -32700),
            ((call % '{"path":"X"}').encode().replace(b"X", b"\xff\xfe"), "a1", -32700),
            (b"{nonsense", None, -32700),
            (b"\xff\xfe\x00", None, -32700),
            (b"[]", None, -32600),
            (b'{"jsonrpc":"2.0","id":true}', None, -32600),
            (b'{"jsonrpc":"2.0","id":[5]}', None, -32600),
            (b"[" * 100_000, None, -32700),
        ]
        for line, number, code in cases:
            server.send(line)
            answer = server.receive()
            assert (answer["id"], answer["error"]["code"]) == (number, code), line[:80]
            assert server.call("get_document")["error"]["code"] == "INVALID_INPUT"
        server.send(b"")
        server.send(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "ping"}).encode() + b"\r")
        assert server.receive()["id"] == 9
        assert server.end() == 0
