"""What philorag's server is compared with: FastMCP and nothing else, with as many trivial tools."""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from pydantic import BaseModel


class Answer(BaseModel):
    done: bool = True


async def trivial() -> Answer:
    """Answer that it is done."""
    return Answer()


def main() -> None:
    server: FastMCP[None] = FastMCP("bare")
    for number in range(int(sys.argv[1])):
        server.tool(name=f"trivial_{number}")(trivial)
    server.run(show_banner=False)


if __name__ == "__main__":
    main()
