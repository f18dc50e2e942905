"""One MCP gateway for philosophical research."""

import os

__version__ = "0.1.0"

# When it is imported, fastmcp reads settings from a `.env` of the working folder, which nobody vouches for.
os.environ.setdefault("FASTMCP_ENV_FILE", os.devnull)
