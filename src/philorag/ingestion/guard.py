"""Reading in processes of their own, each with a time limit and a memory limit.

A hostile or broken file costs that file. What a worker answers is JSON and is checked, never unpickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import struct
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

import philorag
from philorag.errors import ProcessingError, ProcessingReason
from philorag.model.blocks import ReadDocument

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReadResult", "ReaderPool"]

_log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">I")
_DEFAULT_MEMORY = 256 << 20
_DEFAULT_MAX_BYTES = 200 << 20
_START_TIMEOUT_S = 60.0
_WATCH_INTERVAL_S = 0.05
_NEARLY_FULL = 0.75
_STDERR_BYTES = 4096
_STRICT = ConfigDict(strict=True, extra="forbid")
# A reader has no use for the parent's secrets, and an exploited one might.
_ENVIRONMENT = [
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONHOME",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "TMPDIR",
    "COVERAGE_PROCESS_START",
]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class ReadResult:
    """*sha256*, *size* and *mtime_ns* are of the very bytes that *document* was read from."""

    document: ReadDocument
    sha256: str
    size: int
    mtime_ns: int


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    reason: ProcessingReason
    details: dict[str, str | int | float | None]


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class _Reply:
    result: ReadResult | None = None
    error: _Failure | None = None


@dataclass
class _Worker:
    process: asyncio.subprocess.Process
    stderr: bytearray = field(default_factory=bytearray)
    peak: int = 0
    over_limit: bool = False
    drain: asyncio.Task[None] | None = None

    async def receive(self, limit: int) -> bytes:
        stdout = self.process.stdout
        assert stdout is not None
        (length,) = _LENGTH.unpack(await stdout.readexactly(_LENGTH.size))
        if length > limit:
            raise _Broken
        return await stdout.readexactly(length)

    async def send(self, payload: bytes) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(_LENGTH.pack(len(payload)) + payload)
        await stdin.drain()

    async def keep_stderr(self) -> None:
        stderr = self.process.stderr
        assert stderr is not None
        while piece := await stderr.read(_STDERR_BYTES):
            self.stderr = (self.stderr + piece)[-_STDERR_BYTES:]

    async def watch(self, memory_bytes: int) -> None:
        """Ends the worker when it holds more than it may; also where there are no resource limits."""
        with contextlib.suppress(psutil.Error):
            observed = psutil.Process(self.process.pid)
            while True:
                rss: int = observed.memory_info().rss
                self.peak = max(self.peak, rss)
                if rss > memory_bytes:
                    self.over_limit = True
                    self.kill()
                    return
                await asyncio.sleep(_WATCH_INTERVAL_S)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def stop(self) -> None:
        self.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()
        if self.drain is not None:
            await self.drain


class _Broken(Exception):
    """The worker ended, or answered what no worker of ours does."""


class ReaderPool:
    """At most *size* workers, started when needed; use from one event loop.

    *timeout_s* is wall-clock time a file. *memory_bytes* is for the whole worker, of which an idle one takes 35 MB.
    *command* starts a worker; the limit is appended to it.
    """

    def __init__(
        self,
        size: int = 1,
        timeout_s: float = 120.0,
        memory_bytes: int = _DEFAULT_MEMORY,
        *,
        max_bytes: int = _DEFAULT_MAX_BYTES,
        command: Sequence[str] = (sys.executable, "-P", "-m", "philorag.ingestion.reader_worker"),
    ) -> None:
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._max_bytes = max_bytes
        self._command = tuple(command)
        self._slots = asyncio.Semaphore(size)
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}
        self._closed = False

    async def read(self, path: Path) -> ReadResult:
        """Raises `ProcessingError` for whatever is wrong with the file; cancelling ends the reading."""
        async with self._slots:
            if self._closed:
                raise RuntimeError("The reader pool is closed.")
            worker = await self._take()
            self._busy[worker.process.pid] = worker
            try:
                reply = await self._ask(worker, path)
            except BaseException:
                await worker.stop()
                raise
            finally:
                del self._busy[worker.process.pid]
            await self._put_back(worker)
        if reply.error is not None:
            raise ProcessingError(reply.error.message, reason=reply.error.reason, **reply.error.details)
        assert reply.result is not None
        return reply.result

    async def close(self) -> None:
        """Ends all workers, busy ones too."""
        self._closed = True
        workers = [*self._idle, *self._busy.values()]
        self._idle = []
        for worker in workers:
            await worker.stop()

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
            await worker.stop()
        return await self._start()

    async def _put_back(self, worker: _Worker) -> None:
        # The heap of a worker that read a large file stays large, and would count against the next one.
        worn = worker.peak > self._memory_bytes / 2
        if worn or self._closed:
            await worker.stop()
        else:
            worker.peak = 0
            self._idle.append(worker)

    async def _start(self) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            str(self._memory_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
            # Ctrl-C in a terminal goes to the group; workers end with their stdin instead.
            start_new_session=os.name == "posix",
        )
        worker = _Worker(process)
        worker.drain = asyncio.create_task(worker.keep_stderr())
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await worker.receive(0)
        except (TimeoutError, asyncio.IncompleteReadError, _Broken) as exc:
            await worker.stop()
            raise RuntimeError(f"The reader process didn't start: {worker.stderr.decode(errors='replace')}") from exc
        except BaseException:
            await worker.stop()
            raise
        return worker

    def _interrupted(self, worker: _Worker) -> Exception:
        return RuntimeError("The reader pool was closed.") if self._closed else self._crashed(worker)

    async def _ask(self, worker: _Worker, path: Path) -> _Reply:
        request = {"path": os.fspath(path), "max_bytes": self._max_bytes, "timeout_s": self._timeout_s}
        watch = asyncio.create_task(worker.watch(self._memory_bytes))
        try:
            async with asyncio.timeout(self._timeout_s):
                await worker.send(json.dumps(request).encode())
                # More text than the worker may have memory is no honest answer.
                payload = await worker.receive(self._memory_bytes)
            return await asyncio.to_thread(_checked, payload)
        except TimeoutError as exc:
            raise self._timed_out() from exc
        except (asyncio.IncompleteReadError, ConnectionError, _Broken) as exc:
            await worker.stop()
            raise self._interrupted(worker) from exc
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    def _timed_out(self) -> ProcessingError:
        return ProcessingError(
            f"Reading took longer than {self._timeout_s:g} seconds and was stopped.",
            reason="timeout",
            seconds=self._timeout_s,
        )

    def _crashed(self, worker: _Worker) -> ProcessingError:
        code = worker.process.returncode
        if code == -getattr(signal, "SIGALRM", 0):
            return self._timed_out()
        if worker.over_limit or worker.peak > _NEARLY_FULL * self._memory_bytes:
            megabytes = self._memory_bytes >> 20
            return ProcessingError(
                f"Reading this file takes more memory than the {megabytes} MB that are allowed.",
                reason="out_of_memory",
                megabytes=megabytes,
            )
        _log.warning("a reader process ended with %s: %s", code, worker.stderr.decode(errors="replace"))
        return ProcessingError("The file made its reader crash; it is probably damaged.", reason="corrupt")


def _environment() -> dict[str, str]:
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    source = str(Path(philorag.__file__).parents[1])
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return environment | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}


@cache
def _replies() -> TypeAdapter[Any]:
    return TypeAdapter(_Reply)


def _checked(payload: bytes) -> _Reply:
    """The answer, if it has exactly the shape that it should have and all offsets lie within their text."""
    try:
        reply: _Reply = _replies().validate_json(payload)
    except ValidationError as exc:
        raise _Broken from exc
    if (reply.result is None) == (reply.error is None):
        raise _Broken
    for block in reply.result.document.blocks if reply.result else ():
        if not block.text or any(not 0 <= offset <= len(block.text) for _, offset in block.marks):
            raise _Broken
    return reply
