"""One MCP gateway for philosophical research."""

__version__ = "0.1.0"
