"""A reader worker whose reader does what the file says: sleep, crash, eat memory, print, lie."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from philorag.ingestion import reader_worker
from philorag.model.blocks import Block, ReadDocument

if TYPE_CHECKING:
    from collections.abc import Callable


def _text(text: str) -> ReadDocument:
    return ReadDocument("text/plain", (Block(text),))


def _hoard() -> None:
    hoard = [bytearray(os.urandom(1 << 20)) for _ in range(1 << 20)]
    raise AssertionError(len(hoard))


def _print() -> None:
    print("noise on stdout", flush=True)  # noqa: T201
    os.write(1, b"more noise")


def _huge_frame() -> None:
    os.write(next(number for number in range(3, 20) if _is_pipe(number)), b"\xff\xff\xff\xff")
    time.sleep(60)


def _is_pipe(number: int) -> bool:
    """Whether this is the duplicate of the first stdout, which carries the frames."""
    try:
        return str(Path(f"/proc/self/fd/{number}").readlink()).startswith(("pipe", "socket"))
    except OSError:
        return False


ORDERS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(60),
    "spin": lambda: re.match(r"(a+)+$", "a" * 40 + "b"),
    "segfault": lambda: ctypes.string_at(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": lambda: b"x" * (1 << 40),
    "slow memory": _hoard,
    "print": _print,
    "bug": lambda: ORDERS["a bug"],
    "bad offset": lambda: ReadDocument("text/plain", (Block("x", marks=(("1", 99),)),)),
    "bad kind": lambda: ReadDocument("text/plain", (Block("x", kind="evil"),)),  # type: ignore[arg-type]
    "huge frame": _huge_frame,
    "environment": lambda: _text(" ".join(sorted(os.environ))),
    "modules": lambda: _text(" ".join(sorted(sys.modules))),
}


def obey(data: bytes, _name: str) -> ReadDocument:
    order = data.decode()
    result = ORDERS[order]() if order in ORDERS else None
    return result if isinstance(result, ReadDocument) else _text(order)


if __name__ == "__main__":
    setattr(reader_worker, "read_document", obey)  # noqa: B010 - the name belongs to another module
    reader_worker.main()
