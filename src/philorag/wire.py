"""Failures on the wire: every way a tool call can fail, as the contract's one JSON shape."""

from __future__ import annotations

import difflib
import json
import logging
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import NotFoundError, ToolError
from fastmcp.exceptions import ValidationError as ArgumentsInvalid
from fastmcp.server.middleware import Middleware
from pydantic import ValidationError

from philorag.errors import InvalidInput, PhiloragError, error_payload, new_incident

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fastmcp.server.middleware import CallNext, MiddlewareContext
    from fastmcp.tools.base import ToolResult
    from mcp_types import CallToolRequestParams
    from pydantic_core import ErrorDetails

__all__ = ["ContractErrors", "ToolFailure", "explain"]

_LOG = logging.getLogger(__name__)
_SHOWN = 3
_LONGEST_ECHO = 40


class ToolFailure(ToolError):
    """A tool's failure on its way to the middleware."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error), log_level=logging.DEBUG)
        self.error = error


class ContractErrors(Middleware):
    """Raises every failure of a tool call again, as the contract's JSON."""

    def __init__(self, with_status: Collection[str]) -> None:
        self._with_status = with_status

    async def on_call_tool(
        self, context: MiddlewareContext[CallToolRequestParams], call_next: CallNext[CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        name = context.message.name
        try:
            return await call_next(context)
        except ToolFailure as failure:
            error = failure.error
        except ArgumentsInvalid as invalid:
            error = await _invalid(context, invalid)
        except NotFoundError:
            error = await _unknown_tool(context)
        raise ToolError(self._json(name, error), log_level=logging.DEBUG)

    def _json(self, tool: str, error: Exception) -> str:
        incident = None
        if not isinstance(error, PhiloragError):
            incident = new_incident()
            _LOG.error("Incident %s in %s", incident, tool, exc_info=error)
        payload = error_payload(error, incident=incident)
        if tool in self._with_status:
            payload |= {"status": "error", "error_type": payload["error"]["code"]}
        return json.dumps(payload, ensure_ascii=False)


async def _invalid(context: MiddlewareContext[CallToolRequestParams], invalid: ArgumentsInvalid) -> Exception:
    cause = invalid.__cause__
    if not isinstance(cause, ValidationError) or context.fastmcp_context is None:
        return invalid
    tool = await context.fastmcp_context.fastmcp.get_tool(context.message.name)
    return explain(cause, tool.parameters if tool is not None else {})


async def _unknown_tool(context: MiddlewareContext[CallToolRequestParams]) -> InvalidInput:
    name = context.message.name
    known: list[str] = []
    if context.fastmcp_context is not None:
        known = [tool.name for tool in await context.fastmcp_context.fastmcp.list_tools()]
    return InvalidInput(f"There is no tool {_echo(name)}.{_nearest(name, known)}", argument="name")


def explain(error: ValidationError, schema: dict[str, Any]) -> InvalidInput:
    """What is wrong with a tool's arguments: the argument, the value's problem and an example that is accepted."""
    problems = _distinct(error.errors(include_url=False))
    sentences = [_sentence(problem, schema) for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        sentences.append(f"({len(problems) - _SHOWN} more problems.)")
    first = _path(problems[0]["loc"])
    details: dict[str, Any] = {"argument": first, "problem": problems[0]["msg"]}
    example = _example(schema, problems[0]["loc"])
    if example is not None:
        details["example"] = example
    return InvalidInput(" ".join(sentences), **details)


def _distinct(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """One problem an argument: each branch of a union adds its own."""
    by_path: dict[str, ErrorDetails] = {}
    for problem in problems:
        by_path.setdefault(_path(problem["loc"]), problem)
    return list(by_path.values())


def _sentence(problem: ErrorDetails, schema: dict[str, Any]) -> str:
    path = _path(problem["loc"])
    known = list(_properties(schema, problem["loc"][:-1]))
    if problem["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
        return f"Unknown argument `{path}`.{_nearest(str(problem['loc'][-1]), known)}"
    example = _example(schema, problem["loc"])
    hint = "" if example is None else f" Give for example {json.dumps(example, ensure_ascii=False)}."
    if problem["type"] in {"missing_argument", "missing"}:
        return f"The argument `{path}` is missing.{hint}"
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    return f"`{path}`: {message}{_got(problem)}.{hint}"


def _got(problem: ErrorDetails) -> str:
    value = problem.get("input")
    if isinstance(value, str | int | float | bool) or value is None:
        echo = _echo(value)
        return f"; got {echo}" if echo else ""
    return ""


def _echo(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_ECHO else ""


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.4)
    if near:
        return f" Did you mean `{near[0]}`?"
    return f" Known: {', '.join(sorted(known))}." if known else ""


def _path(location: Sequence[str | int]) -> str:
    """The argument's path, without the branches of unions and validators that pydantic lists among it."""
    path = str(location[0]) if location else ""
    for part in location[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in _BRANCHES:
            path += f".{part}"
    return path


_BRANCHES = frozenset({"int", "str", "float", "bool", "dict", "list", "none"})


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """*node* with its reference followed, and an optional's one real branch taken."""
    if "$ref" in node:
        target: dict[str, Any] = schema.get("$defs", {}).get(node["$ref"].rsplit("/", 1)[-1], {})
        return target
    for branch in node.get("anyOf", ()):
        if branch.get("type") != "null":
            return {**_resolve(schema, branch), **{key: node[key] for key in ("examples",) if key in node}}
    return node


def _properties(schema: dict[str, Any], location: Sequence[str | int]) -> dict[str, Any]:
    node = schema
    for part in location:
        if isinstance(part, int):
            node = _resolve(schema, node.get("items", {}))
        elif part in node.get("properties", {}):
            node = _resolve(schema, node["properties"][part])
    properties: dict[str, Any] = node.get("properties", {})
    return properties


def _example(schema: dict[str, Any], location: Sequence[str | int]) -> Any:
    """An accepted value for the argument at *location*, from its schema; None when it says none."""
    named = [part for part in location if isinstance(part, int) or part in _all_names(schema)]
    if not named or isinstance(named[-1], int):
        named = named[:-1]
    if not named:
        return None
    declared = _properties(schema, named[:-1]).get(str(named[-1]), {})
    node = {**_resolve(schema, declared), **declared}
    if node.get("examples"):
        return node["examples"][0]
    return node.get("enum", [node.get("default")])[0]


def _all_names(schema: dict[str, Any]) -> set[str]:
    nodes = [schema, *schema.get("$defs", {}).values()]
    names = {name for node in nodes for name in node.get("properties", {})}
    for node in nodes:
        for value in node.get("properties", {}).values():
            names |= set(_resolve(schema, value).get("properties", {}))
            names |= set(_resolve(schema, _resolve(schema, value).get("items", {})).get("properties", {}))
    return names
