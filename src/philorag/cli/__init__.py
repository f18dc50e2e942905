"""`philorag`: the library from the command line."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run one command; failures are one sentence on standard error and exit code 1."""
    from philorag.cli.app import run  # noqa: PLC0415 - `import philorag.cli` alone costs nothing

    run()
