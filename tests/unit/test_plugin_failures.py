"""What a plugin's tool does wrong reaches the client in the contract's shape, and no other way."""

from typing import Any

import pytest

from philorag.plugins import Plugin, Registrar
from philorag.settings import Settings
from philorag.testing import ToolCallFailed, call, connected, entry_point


class Opaque:
    """Nothing that JSON can say."""


async def raises() -> dict[str, int]:
    """Fail."""
    return {"division": 1 // 0}


async def answers_what_json_cannot_say() -> dict[str, Any]:
    """Answer with an object."""
    return {"what": Opaque()}


def register(registrar: Registrar) -> None:
    for tool in (raises, answers_what_json_cannot_say):
        registrar.tool(title="t")(tool)


plugin = Plugin("failing", register)


@pytest.mark.parametrize("tool", ["raises", "answers_what_json_cannot_say"])
async def test_a_bug_in_a_plugin_is_an_internal_error(tool: str):
    """A tool that raises, or answers what can't be written, gives INTERNAL_ERROR with an incident and no more."""
    async with connected(Settings(), entry_point("failing", f"{__name__}:plugin")) as client:
        with pytest.raises(ToolCallFailed) as caught:
            await call(client, tool)
    assert caught.value.error["code"] == "INTERNAL_ERROR"
    assert set(caught.value.error["details"]) == {"incident"}
