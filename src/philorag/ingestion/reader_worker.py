"""The process that reads files: `python -m philorag.ingestion.reader_worker MEMORY_BYTES`.

It takes requests on stdin and answers on the pipe that was its stdout, both as frames: four bytes of length, then
JSON. It ends when stdin does.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import signal
import stat
import struct
import sys
import traceback
from typing import Any, BinaryIO

from philorag.errors import ProcessingError
from philorag.ingestion.readers import read_document

__all__ = ["main", "read_path", "serve"]

_LENGTH = struct.Struct(">I")
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_VANISHED = {errno.ENOENT, errno.ENOTDIR}
_NOT_A_FILE = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.EMLINK}


def main() -> None:
    answers = _own_stdout()
    _limit_memory(int(sys.argv[1]))
    serve(sys.stdin.buffer, answers)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    _send(answers, b"")
    while header := requests.read(_LENGTH.size):
        request = json.loads(requests.read(_LENGTH.unpack(header)[0]))
        _set_alarm(request["timeout_s"])
        reply = _answer(request["path"], request["max_bytes"])
        _set_alarm(0)
        _send(answers, reply)


def _own_stdout() -> BinaryIO:
    """Whatever a library prints goes to stderr; only frames go to the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _send(answers: BinaryIO, payload: bytes) -> None:
    answers.write(_LENGTH.pack(len(payload)))
    answers.write(payload)
    answers.flush()


def _limit_memory(memory_bytes: int) -> None:
    """RLIMIT_DATA (27 MB after a large EPUB) is near what is really used; RLIMIT_AS (250 MB) counts what is mapped."""
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - POSIX alone has it

    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _set_alarm(seconds: float) -> None:
    """Ends this process in the kernel if its parent died and C code never comes back."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds and seconds + 2)


def _answer(path: str, max_bytes: int) -> bytes:
    try:
        return _as_json({"result": read_path(path, max_bytes)})
    except ProcessingError as exc:
        details = {key: value for key, value in exc.details.items() if key != "reason"}
        return _as_json({"error": {"message": exc.message, "reason": exc.reason, "details": details}})
    except MemoryError:
        message = "Reading this file takes more memory than is allowed."
        return _as_json({"error": {"message": message, "reason": "out_of_memory", "details": {}}})
    except Exception as exc:  # noqa: BLE001 - a bug in a reader costs this file, not the run; stderr has the traceback
        traceback.print_exc()
        message = f"The reader failed on this file ({type(exc).__name__})."
        return _as_json({"error": {"message": message, "reason": "corrupt", "details": {}}})


def _as_json(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply, ensure_ascii=False, default=_fields).encode("utf-8", "replace")


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def read_path(path: str, max_bytes: int) -> dict[str, Any]:
    """The fields of a `ReadResult`; follows no link and waits for no device."""
    with _opened(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size > max_bytes:
            raise _too_large(max_bytes)
        try:
            data = file.read(status.st_size + 1)
        except OSError as exc:
            raise _unreadable(exc) from exc
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return {
        "document": read_document(data, os.path.basename(path)),  # noqa: PTH119 - a path may hold any byte
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "mtime_ns": status.st_mtime_ns,
    }


def _opened(path: str) -> BinaryIO:
    descriptor = _descriptor(path)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_a_file()
    return os.fdopen(descriptor, "rb")


def _descriptor(path: str) -> int:
    try:
        return os.open(path, _OPEN_FLAGS)
    except ValueError as exc:
        raise _not_a_file() from exc
    except OSError as exc:
        if exc.errno in _VANISHED:
            raise ProcessingError("The file is no longer there.", reason="vanished") from exc
        if exc.errno in _NOT_A_FILE or os.path.isdir(path):  # noqa: PTH112 - is asked of a name
            raise _not_a_file() from exc
        raise _unreadable(exc) from exc


def _not_a_file() -> ProcessingError:
    return ProcessingError(
        "This is no regular file but a link, a folder, a pipe or a device. Name the file itself.", reason="not_a_file"
    )


def _too_large(max_bytes: int) -> ProcessingError:
    return ProcessingError(
        f"The file is larger than {max_bytes} bytes. Split it.", reason="too_large", max_bytes=max_bytes
    )


def _unreadable(exc: OSError) -> ProcessingError:
    return ProcessingError(
        f"The file can't be read: {exc.strerror or 'no reason given'}. Check its permissions.", reason="unreadable"
    )


if __name__ == "__main__":
    main()
