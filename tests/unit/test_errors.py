"""The exception tree and its one mapping to the contract's JSON."""

import json

import pytest

from philorag import errors
from philorag.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DocumentNotFound,
    EmbeddingFailed,
    InvalidInput,
    PermissionDenied,
    PhiloragError,
    ProcessingError,
    error_payload,
    new_incident,
    reason,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("m", argument="a"), "INVALID_INPUT"),
        (DocumentNotFound("m", document_id="1"), "DOCUMENT_NOT_FOUND"),
        (PermissionDenied("m"), "PERMISSION_DENIED"),
        (EmbeddingFailed("m"), "EMBEDDING_FAILED"),
        (ProcessingError("m", reason="corrupt"), "PROCESSING_ERROR"),
        (DatabaseUnavailable("m", reason="auth"), "DATABASE_UNAVAILABLE"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_error_has_the_code_of_the_contract(error, code):
    """An error is its code, its message and its details, beside the older servers' `success`."""
    assert error_payload(error) == {
        "success": False,
        "error": {"code": code, "message": "m", "details": error.details},
    }


def test_a_reason_is_among_the_details():
    """The reason of a failed file or database is in the details that clients get."""
    assert ProcessingError("m", reason="encrypted", path="documents/a.pdf").details == {
        "reason": "encrypted",
        "path": "documents/a.pdf",
    }
    assert DatabaseUnavailable("m", reason="unreachable").details == {"reason": "unreachable"}


def test_a_bug_shows_its_incident_and_nothing_else():
    """Of an unexpected exception the client gets an incident number, never the text."""
    payload = error_payload(KeyError("secret /srv/key select 1"), incident="abcd1234")
    assert payload["error"]["code"] == "INTERNAL_ERROR"
    assert payload["error"]["details"] == {"incident": "abcd1234"}
    assert "abcd1234" in payload["error"]["message"]
    assert "secret" not in json.dumps(payload)


def test_a_bug_without_an_incident_gets_one():
    """An incident is made when none is given."""
    assert len(error_payload(ValueError())["error"]["details"]["incident"]) == 8


def test_incidents_differ():
    """Two incidents have two numbers."""
    assert new_incident() != new_incident()


def test_every_error_is_exported():
    """The whole tree is in `__all__`."""
    tree: set[type[PhiloragError]] = {PhiloragError, *PhiloragError.__subclasses__()}
    assert {one.__name__ for one in tree} <= set(errors.__all__)


def test_the_tree_is_drawn_as_it_is():
    """The drawing at the top of the module names every error and its code."""
    for one in PhiloragError.__subclasses__():
        (line,) = [line for line in str(errors.__doc__).splitlines() if f"── {one.__name__} " in line]
        assert one is ConfigurationError or one.code in line


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (OSError(2, "No such file", "/home/alice/secret/key.pem"), "OSError: [Errno 2] No such file: 'key.pem'"),
        (ImportError("cannot import name 'a' from 'b' (/srv/app/b/__init__.py)"), "(__init__.py)"),
        (RuntimeError(r"C:\Users\alice\plugin.ini is bad"), "RuntimeError: plugin.ini is bad"),
        (RuntimeError("and/or"), "RuntimeError: and/or"),
    ],
)
def test_a_reason_names_no_folder_of_the_server(error, shown):
    """Why somebody else's code failed is told without the folders of this machine."""
    assert reason(error).replace("FileNotFoundError", "OSError").endswith(shown)


def test_a_reason_is_short():
    """A reason has at most 300 characters."""
    assert len(reason(ValueError("x" * 1000))) == 300
