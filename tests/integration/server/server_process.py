"""A real `philorag-mcp` process, spoken to in JSON lines."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PROGRAM", "ServerProcess", "serving", "write_plugin"]

PROGRAM = Path(sys.executable).with_name("philorag-mcp")
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class ServerProcess:
    """Every line that the process writes must be a JSON-RPC message: reading another one fails the test."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._ids = itertools.count(1)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next answer; notifications are passed over."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, f"the server ended: {self.log()}"
            message: dict[str, Any] = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if "method" not in message:
                return message

    def request(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}).encode())
        answer = self.receive()
        assert answer["id"] == number
        return answer

    def greet(self) -> dict[str, Any]:
        answer = self.request("initialize", **HELLO)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer

    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.request("tools/list")["result"]["tools"]]

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """A tool's structured answer, or the contract's error."""
        result = self.request("tools/call", name=tool, arguments=arguments)["result"]
        (block,) = result["content"]
        payload: dict[str, Any] = json.loads(block["text"])
        if not result.get("isError", False):
            assert payload == result["structuredContent"]
        return payload

    def end(self) -> int:
        """End its input and wait; nothing but JSON-RPC may be left to read."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        for line in self.process.stdout:
            assert json.loads(line)["jsonrpc"] == "2.0"
        return self.process.wait()

    def log(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._errors.close()


@contextmanager
def serving(folder: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[ServerProcess]:
    """A process with *folder* as its working folder, gone afterwards."""
    server = ServerProcess(folder, environment, *arguments)
    try:
        yield server
    finally:
        server.close()


def write_plugin(folder: Path, name: str, code: str, *, module: str = "") -> None:
    """An installed plugin as pip would leave it in *folder*: a module and its metadata with an entry point."""
    module = module or f"{name}_plugin"
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    information = folder / f"{module}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[philorag.tools]\n{name} = {module}:plugin\n")
