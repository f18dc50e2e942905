"""A real `philorag-mcp --http` process at a free port."""

from __future__ import annotations

import functools
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from philorag.settings import variable_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PROGRAM", "HttpProcess", "environment_with", "over_http"]

PROGRAM = Path(sys.executable).with_name("philorag-mcp")
_READY = "Serving MCP at "
_PATIENCE = 30


def environment_with(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment without any setting of the developer's own, and with *settings*; PYTHONPATH is put in front."""
    ours = {variable for variables in variable_names().values() for variable in variables}
    kept = {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("PHILORAG_")}
    paths = [path for path in (settings.get("PYTHONPATH"), kept.get("PYTHONPATH")) if path]
    return {**kept, **settings, "PYTHONPATH": os.pathsep.join(paths)}


class HttpProcess:
    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "--http", "--port", "0"],
            cwd=folder,
            env=environment_with(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @functools.cached_property
    def url(self) -> str:
        """Where it serves MCP, once it does."""
        return self.wait_for(_READY).rpartition(_READY)[2].strip()

    @property
    def base(self) -> str:
        return self.url.removesuffix("/mcp")

    @property
    def port(self) -> int | None:
        return urlsplit(self.url).port

    def wait_for(self, text: str) -> str:
        """The next line of the log that holds *text*."""
        while (line := self._lines.get(timeout=_PATIENCE)) is not None:
            if text in line:
                return line
        raise AssertionError(f"the server ended: {''.join(self.log)}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code after the signal; it must have written nothing to standard output."""
        assert self.process.stdout is not None
        self.process.send_signal(number)
        code = self.process.wait(_PATIENCE)
        assert self.process.stdout.read() == ""
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            self._lines.put(line)
        self._lines.put(None)


@contextmanager
def over_http(folder: Path, settings: Mapping[str, str]) -> Iterator[HttpProcess]:
    """A process with *folder* as its working folder, gone afterwards."""
    server = HttpProcess(folder, settings)
    try:
        yield server
    finally:
        server.close()
