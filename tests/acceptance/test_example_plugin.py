"""The example plugin as its user meets it: installed by pip, served over stdio, tested with the public helpers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from tests.integration.server.server_process import PROGRAM

from philorag.testing import call

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that pip installed the example into."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--no-compile", "--quiet"]
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--root-user-action=ignore"]
    subprocess.run([*pip, *options, "--target", folder, PLUGIN], check=True)
    return folder


async def test_a_client_calls_the_tool_of_an_installed_plugin(installed, data_dir, tmp_path):
    """An installed plugin's tool is served over stdio beside the built-in ones, with the plugin's own setting."""
    environment = {
        "PYTHONPATH": str(installed),
        "PHILORAG_DATA_DIR": str(data_dir),
        "PHILORAG_LIBRARY": "concordance",
        "PHILORAG_LIBRARY_DIR": str(tmp_path),
        "PHILORAG_PLUGIN_CONCORDANCE_WIDTH": "12",
    }
    transport = StdioTransport(str(PROGRAM), [], env={**os.environ, **environment}, cwd=str(tmp_path))
    async with Client(transport) as client:
        text = "All men by nature desire to know."
        stored = await call(client, "put_document", text=text, filepath="metaphysics", file_type="txt")
        document_id = int(stored["details"]["document_id"])
        answer = await call(client, "concordance", document_id=document_id, word="nature")
        status = await call(client, "gateway_status")
    assert [(line["before"], line["after"]) for line in answer["lines"]] == [("All men by ", " desire to k")]
    state = next(one for one in status["plugins"] if one["toolset"] == "concordance")
    assert state["distribution"] == "philorag-concordance"
    assert state["tools"] == ["concordance"]
    assert state["problem"] is None


def test_the_tests_of_the_example_pass(installed, tmp_path):
    """The example's own tests pass where it is installed."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    ran = subprocess.run(command, cwd=PLUGIN, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_shows_the_code_that_is_installed():
    """The code in docs/plugins.md is the code of the example, to the letter."""
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    for name in ("pyproject.toml", "src/philorag_concordance/__init__.py", "tests/test_concordance.py"):
        assert (PLUGIN / name).read_text(encoding="utf-8").strip() in page, name
