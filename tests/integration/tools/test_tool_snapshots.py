"""What a client sees of every tool, as it was last reviewed.

`PHILORAG_RENEW_SNAPSHOTS=1 pytest tests/integration/tools/test_tool_snapshots.py` writes the snapshots and the
reference pages anew; the difference is then reviewed like a change of the API.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from philorag import settings_reference, tools_reference
from philorag.plugins import discover
from philorag.server import build_gateway
from philorag.settings import Settings, load_settings

ROOT = Path(__file__).parents[3]
SNAPSHOTS = Path(__file__).with_name("snapshots")
# Read before the environment is scrubbed for the tests.
RENEW = os.environ.get("PHILORAG_RENEW_SNAPSHOTS") == "1"
# o200k_base takes four characters and more for a token of JSON in English; its file can't be had without a network.
CHARACTERS_PER_TOKEN = 3
MOST_FOR_ONE, MOST_FOR_ALL = 700, 12_000


def described(tool: Any) -> Any:
    seen = tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: seen[name] for name in ("name", "title", "description", "inputSchema", "annotations")}


@pytest.fixture
async def tools():
    """What a client sees of each built-in tool, by name."""
    ours = [point for point in discover() if point.dist is not None and point.dist.name == "philorag"]
    server = build_gateway(Settings(), ours)
    return {tool.name: described(tool) for tool in await server.list_tools()}


def as_text(description: Any) -> Any:
    return json.dumps(description, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


async def test_tools_are_as_they_were_reviewed(tools):
    """Name, description, input schema and annotations of every tool are those of its snapshot."""
    if RENEW:
        for name, description in tools.items():
            (SNAPSHOTS / f"{name}.json").write_text(as_text(description), encoding="utf-8")
    assert {path.stem for path in SNAPSHOTS.glob("*.json")} == set(tools)
    for name, description in tools.items():
        assert (SNAPSHOTS / f"{name}.json").read_text(encoding="utf-8") == as_text(description)


async def test_tools_stay_within_their_budget(tools):
    """What a model must read of a tool stays under 700 tokens, and of all tools under 12,000."""
    sizes = {
        name: len(json.dumps([one["name"], one["description"], one["inputSchema"]], ensure_ascii=False))
        for name, one in tools.items()
    }
    assert max(sizes.values()) < MOST_FOR_ONE * CHARACTERS_PER_TOKEN, sizes
    assert sum(sizes.values()) < MOST_FOR_ALL * CHARACTERS_PER_TOKEN, sizes


async def test_every_argument_is_bounded_and_shown(tools):
    """No text or list is without a limit, no number without bounds, and every pattern has an example."""

    def check(node: Any, where: Any) -> Any:
        kind = node.get("type")
        if kind == "string" and "enum" not in node and "const" not in node:
            assert "maxLength" in node or "pattern" in node, where
            assert "pattern" not in node or node.get("examples"), where
        if kind == "array":
            assert "maxItems" in node, where
            check(node["items"], f"{where}[]")
        if kind == "integer":
            assert {"minimum", "maximum"} <= set(node), where
        for branch in node.get("anyOf", ()):
            check({**branch, **{key: node[key] for key in ("examples",) if key in node}}, where)
        for name, member in node.get("properties", {}).items():
            check(member, f"{where}.{name}")

    for name, tool in tools.items():
        check(tool["inputSchema"], name)
        for part, definition in tool["inputSchema"].get("$defs", {}).items():
            check(definition, f"{name}:{part}")


@pytest.mark.parametrize("name", [".env.example", "docs/settings.md"])
def test_the_reference_of_the_settings_is_up_to_date(name):
    """`.env.example` and docs/settings.md say what `Settings` has: `python -m philorag.settings_reference`."""
    page = settings_reference.pages()[name]
    if RENEW:
        (ROOT / name).write_text(page, encoding="utf-8")
    assert (ROOT / name).read_text(encoding="utf-8") == page


async def test_the_reference_of_the_tools_is_up_to_date():
    """docs/tools.md says what the built-in toolsets offer: `python -m philorag.tools_reference`."""
    page = await tools_reference.page()
    if RENEW:
        (ROOT / "docs/tools.md").write_text(page, encoding="utf-8")
    assert (ROOT / "docs/tools.md").read_text(encoding="utf-8") == page


def test_what_is_generated_is_what_the_commands_write(tmp_path, monkeypatch):
    """The two commands write the pages below the working folder."""
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    settings_reference.main()
    tools_reference.main()
    for name in (".env.example", "docs/settings.md", "docs/tools.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (ROOT / name).read_text(encoding="utf-8")


def test_the_example_of_settings_is_accepted(tmp_path, monkeypatch):
    """Every variable in `.env.example`, with its default, is one that the start accepts."""
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    assignments = [line.removeprefix("# ") for line in lines if "=" in line and line.startswith("# ")]
    (tmp_path / "mine.env").write_text("\n".join(line for line in assignments if " " not in line.split("=")[0]))
    monkeypatch.setenv("PHILORAG_DATA_DIR", str(tmp_path))
    assert load_settings(tmp_path / "mine.env") == load_settings()
