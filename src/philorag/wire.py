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
_UNKNOWN = frozenset({"unexpected_keyword_argument", "extra_forbidden"})
_MISSING = frozenset({"missing_argument", "missing"})
_BRANCHES = frozenset({"int", "str", "float", "bool", "dict", "list", "none"})
_SIMPLE = {"boolean": True, "string": "text"}
_SHOWN = 3
_LONGEST_ECHO = 40


class ToolFailure(ToolError):
    """A tool's failure on its way to the middleware."""

    def __init__(self, error: BaseException) -> None:
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
        error: BaseException
        try:
            return await call_next(context)
        except ToolFailure as failure:
            error = failure.error
        except ArgumentsInvalid as invalid:
            error = await _invalid(context, invalid)
        except NotFoundError:
            error = await _unknown_tool(context)
        except ToolError as refused:
            # FastMCP's own, such as for a result that can't be written as JSON.
            error = refused
        raise ToolError(self._json(name, error), log_level=logging.DEBUG)

    def _json(self, tool: str, error: BaseException) -> str:
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
    first = problems[0]
    details: dict[str, Any] = {"argument": _path(first["loc"]), "problem": _problem(first)}
    if first["type"] not in _UNKNOWN:
        details["example"] = _example(schema, first["loc"])
    return InvalidInput(" ".join(sentences), **details)


def _distinct(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """One problem an argument: of those that the branches of a union have, the one that is not about the type."""
    by_path: dict[str, ErrorDetails] = {}
    for problem in problems:
        before = by_path.setdefault(_path(problem["loc"]), problem)
        if before["type"].endswith("_type") and not problem["type"].endswith("_type"):
            by_path[_path(problem["loc"])] = problem
    return list(by_path.values())


def _sentence(problem: ErrorDetails, schema: dict[str, Any]) -> str:
    path = _path(problem["loc"])
    if problem["type"] in _UNKNOWN:
        return f"Unknown argument `{path}`.{_nearest(str(problem['loc'][-1]), _known(schema, problem['loc']))}"
    hint = f"Give for example {json.dumps(_example(schema, problem['loc']), ensure_ascii=False)}."
    if problem["type"] in _MISSING:
        return f"The argument `{path}` is missing. {hint}"
    return f"`{path}`: {_problem(problem)}{_got(problem)}. {hint}"


def _problem(problem: ErrorDetails) -> str:
    """Pydantic's message; of a text's length in characters, which pydantic calls items."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _UNKNOWN:
        return "unknown argument"
    if kind in _MISSING:
        return "missing"
    if kind == "too_long" and isinstance(problem["input"], str):
        return f"must have at most {context['max_length']} characters; it has {context['actual_length']}"
    if kind == "too_short" and isinstance(problem["input"], str):
        return f"must have at least {context['min_length']} character"
    return problem["msg"].removeprefix("Value error, ").rstrip(".")


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


def _known(schema: dict[str, Any], location: Sequence[str | int]) -> list[str]:
    """The names that stand where the unknown last part of *location* was given."""
    return list(_at(schema, location[:-1]).get("properties", {}))


def _at(schema: dict[str, Any], location: Sequence[str | int]) -> dict[str, Any]:
    """The schema of the argument at *location*; empty where it says nothing."""
    node = schema
    for part in location:
        if isinstance(part, int):
            node = _resolve(schema, node.get("items", {}))
        elif part in node.get("properties", {}):
            node = _resolve(schema, node["properties"][part])
        elif part.isidentifier() and part not in _BRANCHES:
            return {}
    return node


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """*node* with its reference followed and, of a union, the branch taken that shows best what is accepted."""
    if "$ref" in node:
        target: dict[str, Any] = schema.get("$defs", {}).get(node["$ref"].rsplit("/", 1)[-1], {})
        return {**target, **node}
    branches = [_resolve(schema, branch) for branch in node.get("anyOf", ()) if branch.get("type") != "null"]
    if not branches:
        return node
    return {**next((branch for branch in branches if branch.get("examples")), branches[0]), **node}


def _example(schema: dict[str, Any], location: Sequence[str | int]) -> Any:
    """A value that is accepted for the argument at *location*."""
    return _accepted(schema, _at(schema, location))


def _accepted(schema: dict[str, Any], node: dict[str, Any]) -> Any:
    if node.get("examples"):
        return node["examples"][0]
    if node.get("enum"):
        return node["enum"][0]
    if node.get("default") is not None:
        return node["default"]
    kind = node.get("type")
    if kind == "object":
        required = {name: _resolve(schema, node["properties"][name]) for name in node.get("required", ())}
        return {name: _accepted(schema, part) for name, part in required.items()}
    if kind == "array":
        return [_accepted(schema, _resolve(schema, node.get("items", {})))]
    return _SIMPLE.get(kind, node.get("minimum", 1)) if isinstance(kind, str) else None
