"""The documentation says what is so."""

import re
from pathlib import Path

import pytest

from philorag.plugins import load_plugins
from philorag.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    """Every link to a file of the project leads to one."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_names_every_tool():
    """README's table has the toolsets and tools that the gateway registers, and no others."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE))
    listed = {toolset: set(re.findall(r"`(\w+)`", tools)) for toolset, tools in rows.items()}
    assert listed == {loaded.toolset: set(loaded.tools) for loaded in load_plugins(Settings())}


def test_the_readme_begins_with_the_two_commands():
    """The first screen has the command that runs it, the one that tests it, and the client configuration."""
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40])
    assert all(part in first_screen for part in ("make run", "make test", '"mcpServers"'))


def test_the_lock_files_name_no_index():
    """Lock files pin by hash and name no place to download from."""
    for lock in ROOT.glob("requirements*.lock"):
        text = lock.read_text(encoding="utf-8")
        assert "--hash=sha256:" in text
        assert re.search(r"https?://|--(extra-)?index-url|--find-links", text) is None
