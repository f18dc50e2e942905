"""A real HTTP server that answers as OpenAI-compatible servers do, or as a test wants it to."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FakeEndpoint", "Reply", "embedding_of", "running_endpoint"]

DIMENSIONS = 16


@dataclass(frozen=True)
class Reply:
    """What is answered instead of embeddings; *status* 0 hangs up without a word."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class FakeEndpoint:
    """Answers with *replies* while there are any, then with embeddings; notes what it was asked."""

    base_url: str = ""
    dimensions: int = DIMENSIONS
    replies: list[Reply] = field(default_factory=list)
    always: Reply | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def answer(self, request: dict[str, Any]) -> Reply:
        self.requests.append(request)
        if self.replies:
            return self.replies.pop(0)
        return self.always or Reply(body=self.embeddings(request))

    def embeddings(self, request: dict[str, Any]) -> dict[str, Any]:
        """In OpenAI's shape, but backwards: order is what `index` says."""
        dimensions = request.get("dimensions", self.dimensions)
        rows = [
            {"object": "embedding", "index": index, "embedding": embedding_of(text, dimensions)}
            for index, text in enumerate(request["input"])
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": rows[::-1], "model": request["model"], "usage": usage}


def embedding_of(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector that texts with the same words share, and that isn't of unit length."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [text]:
        vector[zlib.crc32(word.encode()) % dimensions] += 1.0
    return vector


@contextmanager
def running_endpoint() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = endpoint.answer(request) if self.path == "/v1/embeddings" else Reply(404, {"error": "no such page"})
            if reply.status == 0:
                self.close_connection = True
                return
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    endpoint.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
