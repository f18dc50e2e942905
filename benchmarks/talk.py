"""Talking to a server in either era of the protocol, with as little client as possible."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Any, Literal

from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

__all__ = ["ERAS", "Era", "Message", "Talk"]

Era = Literal["handshake", "modern"]
ERAS: tuple[Era, ...] = ("handshake", "modern")
Message = dict[str, Any]

_CLIENT = {"name": "benchmark", "version": "1"}
_HELLO = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": _CLIENT}
_META = {
    PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_META_KEY: _CLIENT,
    CLIENT_CAPABILITIES_META_KEY: {},
}


class Talk(ABC):
    """One client of one server, which is process *pid*."""

    def __init__(self, pid: int, era: Era) -> None:
        self.pid = pid
        self.version = LATEST_HANDSHAKE_VERSION if era == "handshake" else LATEST_MODERN_VERSION
        self._era = era
        self._ids = itertools.count(1)

    @abstractmethod
    def exchange(self, message: Message) -> Message:
        """Send a request and wait for its answer."""

    @abstractmethod
    def notify(self, message: Message) -> None: ...

    def greet(self) -> None:
        """What a client of this era says first."""
        if self._era == "handshake":
            self.request("initialize", **_HELLO)
            self.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, **parameters: Any) -> Message:
        """The result of a request. Raises `RuntimeError` for an error."""
        meta = {"_meta": _META} if self._era == "modern" else {}
        answer = self.exchange(
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**parameters, **meta}}
        )
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: Message = answer["result"]
        return result

    def tools(self) -> int:
        """How many tools there are."""
        return len(self.request("tools/list")["tools"])

    def call(self, tool: str, **arguments: Any) -> Message:
        """A tool's structured answer. Raises `RuntimeError` for a failure."""
        result = self.request("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {result['content']}")
        structured: Message = result["structuredContent"]
        return structured
