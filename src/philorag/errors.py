"""What can go wrong, as one tree, and the one mapping of it to the contract's JSON.

PhiloragError
├── InvalidInput            INVALID_INPUT
├── DocumentNotFound        DOCUMENT_NOT_FOUND
├── PermissionDenied        PERMISSION_DENIED
├── EmbeddingFailed         EMBEDDING_FAILED
├── ProcessingError         PROCESSING_ERROR       details.reason
├── DatabaseUnavailable     DATABASE_UNAVAILABLE   details.reason
└── ConfigurationError      stops the start, never reaches a client
"""

from __future__ import annotations

import re
import secrets
from typing import Any, ClassVar, Literal

__all__ = [
    "ConfigurationError",
    "DatabaseReason",
    "DatabaseUnavailable",
    "DocumentNotFound",
    "EmbeddingFailed",
    "InvalidInput",
    "PermissionDenied",
    "PhiloragError",
    "ProcessingError",
    "ProcessingReason",
    "error_payload",
    "new_incident",
    "reason",
]

ProcessingReason = Literal[
    "unsupported_format",
    "encrypted",
    "corrupt",
    "empty",
    "too_large",
    "timeout",
    "no_text",
    "unreadable",
    "not_a_file",
    "vanished",
    "out_of_memory",
]
DatabaseReason = Literal["unreachable", "auth", "missing_extension", "schema_newer"]

_FOLDERS = re.compile(r"(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"():]+[/\\])+")
_LONGEST_REASON = 300


class PhiloragError(Exception):
    """Something went wrong that the caller can be told about.

    *message* says what to do next; *details* names the argument, the id or the path.
    Neither may hold a secret, SQL or an absolute server path.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidInput(PhiloragError):
    """An argument is missing, unknown or has a value that can't be used."""

    code = "INVALID_INPUT"


class DocumentNotFound(PhiloragError):
    """No such document in the caller's library; one of another library looks the same."""

    code = "DOCUMENT_NOT_FOUND"


class PermissionDenied(PhiloragError):
    """The caller may not do this, or a path leaves the folder that it may use."""

    code = "PERMISSION_DENIED"


class EmbeddingFailed(PhiloragError):
    """The embedding provider refused or failed, after retries."""

    code = "EMBEDDING_FAILED"


class ProcessingError(PhiloragError):
    """A file could not be read or parsed; *reason* is one of the contract's words."""

    code = "PROCESSING_ERROR"

    def __init__(self, message: str, *, reason: ProcessingReason, **details: Any) -> None:
        super().__init__(message, reason=reason, **details)
        self.reason: ProcessingReason = reason


class DatabaseUnavailable(PhiloragError):
    """The store can't be used now; asking again is safe."""

    code = "DATABASE_UNAVAILABLE"

    def __init__(self, message: str, *, reason: DatabaseReason, **details: Any) -> None:
        super().__init__(message, reason=reason, **details)
        self.reason: DatabaseReason = reason


class ConfigurationError(PhiloragError):
    """A setting can't be used: the process says which and stops."""

    code = "INVALID_INPUT"


def reason(error: BaseException) -> str:
    """Why somebody else's code failed, short and without the folders of this server, for a client to see."""
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    text = _FOLDERS.sub("", text)
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"


def new_incident() -> str:
    """A short id that links an `INTERNAL_ERROR` answer to its traceback in the log."""
    return secrets.token_hex(4)


def error_payload(error: BaseException, *, incident: str | None = None) -> dict[str, Any]:
    """The contract's JSON for *error*; anything unexpected becomes `INTERNAL_ERROR` without its text."""
    if isinstance(error, PhiloragError):
        body = {"code": error.code, "message": error.message, "details": error.details}
    else:
        incident = incident or new_incident()
        body = {
            "code": "INTERNAL_ERROR",
            "message": f"This is a bug in philorag. Report it with incident {incident}, which is also in the log.",
            "details": {"incident": incident},
        }
    return {"success": False, "error": body}
