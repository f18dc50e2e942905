"""The reference of the settings, made from `Settings` itself: `python -m philorag.settings_reference` renews it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from philorag.settings import PLUGIN_PREFIX, WITHOUT_EFFECT, Settings, variable_names

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = ["pages"]

_INTRODUCTION = f"""\
# Settings

Settings come from the environment and from one file: `.env` in the data folder, or the file that `--env-file` names.
The environment wins. A `.env` of the working folder is never read: a workspace that somebody sent you must not
redirect your database. Unknown `PHILORAG_*` variables stop the start with the nearest known name; an older name
beside the current one must agree with it. `{PLUGIN_PREFIX}*` belongs to [plugins](plugins.md).
{" and ".join(f"`{name}`" for name in WITHOUT_EFFECT)} are accepted for the older servers' sake, without effect.
"""
_OF_THIS_MACHINE = {"data_dir", "embedding_threads"}


def pages() -> dict[str, str]:
    """What the files of the project should hold, by their path from its folder."""
    return {".env.example": _example(), "docs/settings.md": _page()}


def _example() -> str:
    lines = [
        "# Settings of philorag. Copy what you need to `.env` in the data folder, or name a file with --env-file.",
        "# A `.env` of the working folder is never read. What is commented out here is the default.",
    ]
    for name, field in Settings.model_fields.items():
        variable, *_ = variable_names()[name]
        lines += ["", f"# {field.description}", f"# {variable}={_default(name, field)}"]
    return "\n".join(lines) + "\n"


def _page() -> str:
    rows = [_row(name, field) for name, field in Settings.model_fields.items()]
    head = "| variable | older name | default | meaning |\n|---|---|---|---|"
    return "\n".join([_INTRODUCTION, head, *rows, ""])


def _row(name: str, field: FieldInfo) -> str:
    variable, *older = variable_names()[name]
    default = _default(name, field)
    shown = f"`{default}`" if default else ""
    return f"| `{variable}` | {', '.join(f'`{one}`' for one in older)} | {shown} | {field.description} |"


def _default(name: str, field: FieldInfo) -> str:
    value = field.default
    if name in _OF_THIS_MACHINE or value in (None, ()):
        return ""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Write the files below the working folder."""
    for name, text in pages().items():
        Path(name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
