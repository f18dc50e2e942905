"""The reference of the tools, made from what the built-in plugins register: `python -m philorag.tools_reference`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from philorag.plugins import discover, load_plugins
from philorag.settings import Settings

if TYPE_CHECKING:
    from fastmcp.tools.base import Tool

    from philorag.plugins import LoadedPlugin

__all__ = ["page"]

_INTRODUCTION = """\
# Tools

Every tool of the built-in toolsets. `PHILORAG_TOOLSETS` narrows them, `PHILORAG_READ_ONLY` hides those that write. A
failure is a tool error with a code, and arguments that aren't listed here are refused."""
_BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "minItems": "≥ {} items",
    "maxItems": "≤ {} items",
    "pattern": "`{}`",
}
_USUAL = {"minLength": 1, "minimum": 0}


async def page() -> str:
    """What `docs/tools.md` should hold."""
    points = [point for point in discover() if point.dist is not None and point.dist.name == "philorag"]
    parts = [_INTRODUCTION]
    for loaded in load_plugins(Settings.model_construct(), points):
        parts += [f"## Toolset `{loaded.toolset}`", *[_tool(tool) for tool in await _tools(loaded)]]
    return "\n\n".join(parts) + "\n"


async def _tools(loaded: LoadedPlugin) -> list[Tool]:
    if loaded.registrar is None:
        raise RuntimeError(f"{loaded.toolset}: {loaded.problem}")
    found = {tool.name: tool for tool in await loaded.registrar.provider.list_tools()}
    return [found[name] for name in loaded.tools]


def _tool(tool: Tool) -> str:
    parts = [f"### `{tool.name}`", str(tool.description), f"*{_nature(tool)}*"]
    properties = tool.parameters.get("properties", {})
    if properties:
        required = tool.parameters.get("required", ())
        rows = [_argument(name, node, tool.parameters, name in required) for name, node in properties.items()]
        parts.append("\n".join(["| argument | type | default | |", "|---|---|---|---|", *rows]))
    returns = ", ".join(f"`{name}`" for name in (tool.output_schema or {}).get("properties", {}))
    return "\n\n".join([*parts, f"Returns {returns}."])


def _nature(tool: Tool) -> str:
    hints = tool.annotations
    if hints is None or hints.read_only_hint:
        return "Reads only."
    words = ["Writes", "overwrites or removes what was there" if hints.destructive_hint else "destroys nothing"]
    if hints.idempotent_hint:
        words.append("twice is as once")
    return ", ".join(words) + "."


def _argument(name: str, node: dict[str, Any], schema: dict[str, Any], required: bool) -> str:
    default = "required" if required else f"`{json.dumps(node.get('default'), ensure_ascii=False)}`"
    words = [str(node[key]) for key in ("description",) if key in node]
    words += [f"e.g. `{json.dumps(example, ensure_ascii=False)}`" for example in node.get("examples", ())[:1]]
    cells = [f"`{name}`", _type(node, schema), default, "; ".join(words)]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(node: dict[str, Any], schema: dict[str, Any]) -> str:
    """A schema in a few words: its type, its bounds, and the members of an object."""
    if "$ref" in node:
        return _type(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], schema)
    if "anyOf" in node:
        return " or ".join(_type(branch, schema) for branch in node["anyOf"] if branch.get("type") != "null")
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    kind = str(node.get("type", "any"))
    if kind == "array":
        kind = f"array of {_type(node.get('items', {}), schema)}"
    elif node.get("properties"):
        kind = f"object with {', '.join(f'`{name}`' for name in node['properties'])}"
    bounds = [text.format(node[key]) for key, text in _BOUNDS.items() if key in node and _USUAL.get(key) != node[key]]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def main() -> None:
    """Write `docs/tools.md` below the working folder."""
    Path("docs/tools.md").write_text(asyncio.run(page()), encoding="utf-8")
    sys.stdout.write("docs/tools.md\n")


if __name__ == "__main__":
    main()
