"""Server processes, ours and the bare one, over each transport."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.talk import Era, Message, Talk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

__all__ = ["TRANSPORTS", "Server", "bare", "philorag"]

_HOST = "127.0.0.1"
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server: its command, with `--http --port N` after it over HTTP, and variables beside ours."""

    command: Sequence[str | Path]
    environment: dict[str, str]

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            [*self.command, *options],
            env=_environment() | self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if options:
                process.terminate()
            # Over stdio the end of its input is how a server learns that it is no longer needed.
            process.communicate()


def philorag(**settings: str | Path) -> Server:
    """philorag-mcp with *settings* by the names of their variables."""
    variables = {name: str(value) for name, value in settings.items()}
    return Server([Path(sys.executable).with_name("philorag-mcp")], {"LOG_LEVEL": "WARNING", **variables})


def bare(tools: int) -> Server:
    """FastMCP with that many trivial tools."""
    quiet = {"FASTMCP_LOG_LEVEL": "WARNING"}
    return Server([sys.executable, "-m", "benchmarks.bare_server", str(tools)], quiet)


class _StdioTalk(Talk):
    def __init__(self, process: subprocess.Popen[bytes], era: Era) -> None:
        super().__init__(process.pid, era)
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    def exchange(self, message: Message) -> Message:
        self.notify(message)
        for line in self._output:
            answer: Message = json.loads(line)
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer
        raise RuntimeError("The server ended before it answered.")

    def notify(self, message: Message) -> None:
        self._input.write(json.dumps(message).encode() + b"\n")
        self._input.flush()


class _HttpTalk(Talk):
    def __init__(self, process: subprocess.Popen[bytes], era: Era, port: int) -> None:
        super().__init__(process.pid, era)
        self._connection = http.client.HTTPConnection(_HOST, port)

    def exchange(self, message: Message) -> Message:
        answer: Message = json.loads(self._post(message))
        return answer

    def notify(self, message: Message) -> None:
        self._post(message)

    def _post(self, message: Message) -> bytes:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": self.version,
            "Mcp-Method": message["method"],
        }
        if message["method"] == "tools/call":
            headers["Mcp-Name"] = message["params"]["name"]
        body = json.dumps(message).encode()
        try:
            return self._answer(body, headers)
        except ConnectionError:
            # A server gives up a connection that was idle for some seconds.
            self._connection.close()
            return self._answer(body, headers)

    def _answer(self, body: bytes, headers: dict[str, str]) -> bytes:
        self._connection.request("POST", "/mcp", body, headers)
        return self._connection.getresponse().read()


@contextmanager
def _stdio(server: Server, era: Era) -> Iterator[Talk]:
    with server.running() as process:
        talk = _StdioTalk(process, era)
        talk.greet()
        yield talk


@contextmanager
def _http(server: Server, era: Era) -> Iterator[Talk]:
    port = _free_port()
    with server.running("--http", "--port", str(port)) as process:
        _wait_for(port)
        talk = _HttpTalk(process, era, port)
        talk.greet()
        yield talk


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    last = time.monotonic() + _PATIENCE_S
    while time.monotonic() < last:
        with suppress(ConnectionRefusedError), socket.create_connection((_HOST, port)):
            return
        time.sleep(0.05)
    raise RuntimeError("The server doesn't listen.")


def _environment() -> dict[str, str]:
    """Ours without settings: a gateway refuses those that it doesn't know, such as PHILORAG_TEST_DATA."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PHILORAG_")}


TRANSPORTS: dict[str, Callable[[Server, Era], AbstractContextManager[Talk]]] = {"stdio": _stdio, "http": _http}
