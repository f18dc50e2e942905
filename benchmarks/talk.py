"""Server processes, and talking to them in either era of the protocol with as little client as possible.

A transport is a context manager that starts a server and gives a `Talk`; `TRANSPORTS` names them.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

__all__ = ["ERAS", "TRANSPORTS", "Era", "Server", "Talk", "bare", "philorag"]

Era = Literal["handshake", "modern"]
ERAS: tuple[Era, ...] = ("handshake", "modern")
_CLIENT = {"name": "benchmark", "version": "1"}
_MODERN = {
    PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_META_KEY: _CLIENT,
    CLIENT_CAPABILITIES_META_KEY: {},
}


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server: the command up to its transport's options, and variables beside our own."""

    command: Sequence[str | Path]
    environment: dict[str, str]


def philorag(**settings: str | Path) -> Server:
    """philorag-mcp with *settings* by the names of their variables."""
    variables = {name: str(value) for name, value in settings.items()}
    return Server([Path(sys.executable).with_name("philorag-mcp")], {"LOG_LEVEL": "WARNING", **variables})


def bare(tools: int) -> Server:
    return Server([sys.executable, "-m", "benchmarks.bare_server", str(tools)], {})


class Talk(Protocol):
    """One client of one server."""

    @property
    def pid(self) -> int: ...

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a request. Raises `RuntimeError` for an error."""
        ...

    def tools(self) -> int: ...

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool's structured answer. Raises `RuntimeError` for a failure."""
        ...


class _StdioTalk:
    def __init__(self, process: subprocess.Popen[bytes], era: Era) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._meta = {"_meta": _MODERN} if era == "modern" else {}
        if era == "handshake":
            hello = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": _CLIENT}
            self.request("initialize", **hello)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": {**parameters, **self._meta}})
        answer = self._answer(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def tools(self) -> int:
        return len(self.request("tools/list")["tools"])

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.request("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {result['content']}")
        structured: dict[str, Any] = result["structuredContent"]
        return structured

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _answer(self, number: int) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return message
        raise RuntimeError("The server ended before it answered.")


@contextmanager
def _stdio(server: Server, era: Era) -> Iterator[Talk]:
    process = subprocess.Popen(
        [*server.command],
        env=_environment() | server.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield _StdioTalk(process, era)
    finally:
        # The end of its input is how a server over stdio learns that it is no longer needed.
        process.communicate()


def _environment() -> dict[str, str]:
    """Ours without settings: a gateway refuses those that it doesn't know, such as PHILORAG_TEST_DATA."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PHILORAG_")}


TRANSPORTS: dict[str, Callable[[Server, Era], AbstractContextManager[Talk]]] = {"stdio": _stdio}
