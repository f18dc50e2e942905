"""The wire of a server on standard input and output: one JSON-RPC message a line, and nothing else on it."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any, cast

from mcp_types import INVALID_REQUEST, PARSE_ERROR, jsonrpc_message_adapter
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

__all__ = ["Wire"]

_READ = 1 << 16


class Wire:
    """The two descriptors of the protocol, taken away from everybody else when the object is made.

    From then on descriptor 1 is standard error and descriptor 0 is empty, for Python, for native libraries and for
    child processes. `hand_over` gives the wire to the transport, which reads `sys.stdin.buffer` and
    `sys.stdout.buffer` when it begins.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._output = _Output(io.FileIO(os.dup(1), "wb"), _READ)
        self._input = io.BufferedReader(_Checked(self._output, self._begun), _READ)
        os.dup2(2, 1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        self._ordinary = (sys.stdin, sys.stdout)

    def hand_over(self) -> None:
        """Show the wire to the transport, until it begins to read."""
        sys.stdin, sys.stdout = cast("TextIO", _Shown(self._input)), cast("TextIO", _Shown(self._output))

    def after_next_answer(self, callback: Callable[[], None]) -> None:
        """Call *callback*, in the thread that writes, once what is being answered now is on its way."""
        self._output.callback = callback

    def _begun(self) -> None:
        sys.stdin, sys.stdout = self._ordinary


class _Shown:
    def __init__(self, buffer: io.BufferedIOBase) -> None:
        self.buffer = buffer


class _Output(io.BufferedWriter):
    callback: Callable[[], None] | None = None

    def flush(self) -> None:
        super().flush()
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class _Checked(io.RawIOBase):
    """The lines of standard input that are JSON-RPC messages; the others are answered here.

    The transport would drop them, and their sender would wait for ever, or would read broken UTF-8 as other text.
    """

    def __init__(self, output: _Output, begun: Callable[[], None]) -> None:
        self._source = io.BufferedReader(io.FileIO(os.dup(0)), _READ)
        self._output = output
        self._begun: Callable[[], None] | None = begun
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if self._begun is not None:
            self._begun()
            self._begun = None
        while not self._rest:
            line = self._source.readline()
            if not line:
                return 0
            error = _error(line)
            if error is None:
                self._rest = memoryview(line)
            elif error:
                self._output.write(error)
                self._output.flush()
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _error(line: bytes) -> bytes | None:
    """The answer to a line that is no message; None for a message, nothing for an empty line."""
    if not line.strip():
        return b""
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        broken = error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid"
    else:
        return None
    code, message = (
        (PARSE_ERROR, "Parse error: the line is not JSON in UTF-8.")
        if broken
        else (INVALID_REQUEST, "Invalid request: the line is not a JSON-RPC message.")
    )
    answer = {"jsonrpc": "2.0", "id": _id(line), "error": {"code": code, "message": message}}
    return json.dumps(answer).encode() + b"\n"


def _id(line: bytes) -> str | int | None:
    """The request's id as far as it can be made out, so that its sender need not wait; a lone surrogate hides none."""
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None
