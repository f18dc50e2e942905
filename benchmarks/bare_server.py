"""What philorag's server is compared with: FastMCP and nothing else, with as many trivial tools."""

from __future__ import annotations

import argparse

from fastmcp import FastMCP
from pydantic import BaseModel


class Answer(BaseModel):
    done: bool = True


async def trivial() -> Answer:
    """Answer that it is done."""
    return Answer()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tools", type=int)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--port", type=int)
    chosen = parser.parse_args()
    server: FastMCP[None] = FastMCP("bare")
    for number in range(chosen.tools):
        server.tool(name=f"trivial_{number}")(trivial)
    if chosen.http:
        server.run("http", show_banner=False, port=chosen.port, stateless_http=True, json_response=True)
    else:
        server.run(show_banner=False)


if __name__ == "__main__":
    main()
