"""What a process starts with, what stops it, and what is left out."""

import subprocess

import pytest
from tests.integration.server.server_process import PROGRAM, serving, write_plugin

OFFERING = """
from pydantic import BaseModel
from philorag.plugins import Plugin

class Answer(BaseModel):
    done: bool = True

async def {tool}() -> Answer:
    '''Answer.'''
    return Answer()

plugin = Plugin("{name}", lambda registrar: registrar.tool(title="t")({tool}))
"""
CONFIGURED = """
from pydantic_settings import BaseSettings, SettingsConfigDict
from philorag.plugins import Plugin

class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="PHILORAG_PLUGIN_CONFIGURED_")
    width: int

plugin = Plugin("configured", lambda registrar: None, settings=Settings)
"""
UNREGISTERED = """
from philorag.plugins import Plugin

def register(registrar):
    raise RuntimeError("not today")

plugin = Plugin("unregistered", register)
"""
WRITERS = {"add_document", "batch_insert_chunks", "philograph_ingest", "process_text_file", "put_document"}


@pytest.fixture
def environment(data_dir, tmp_path):
    return {
        "PHILORAG_DATA_DIR": str(data_dir),
        "PHILORAG_LIBRARY_DIR": str(tmp_path / "library"),
        "PYTHONPATH": str(tmp_path),
    }


def test_a_start_that_fails_says_one_sentence_on_standard_error(tmp_path, monkeypatch):
    """A setting that can't be used ends the process with 1 and one sentence, without a traceback."""
    monkeypatch.setenv("PHILORAG_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PGHOST", "db.example.org")
    ended = subprocess.run([PROGRAM], cwd=tmp_path, input=b"", capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.decode().startswith("philorag-mcp: PGPASSWORD is missing")
    assert ended.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"PHILORAG_TOOLSETS": "serch"},
            "serch, which no installed plugin provides. Known toolsets: documents, gateway",
        ),
        ({"PHILORAG_REDONLY": "1"}, "Unknown setting PHILORAG_REDONLY. Did you mean PHILORAG_READ_ONLY?"),
        ({"SOURCE_FILE_DIR": "/a", "PHILORAG_SOURCE_DIR": "/b"}, "are two names of one setting and disagree"),
        ({"DATABASE_URL": "mysql://u:hunter2@h/d"}, "DATABASE_URL: "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_setting_that_can_not_be_used_stops_the_start(tmp_path, monkeypatch, capfd, variables, sentence):
    """The program itself refuses what the settings refuse, and repeats no secret."""
    from philorag import server

    class NoWire:
        """The wire would take the descriptors of the tests' own process."""

    monkeypatch.setattr(server, "Wire", NoWire)
    monkeypatch.setattr(server, "configure_logging", lambda settings: None)
    monkeypatch.setenv("PHILORAG_DATA_DIR", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as stopped:
        server.main([])
    assert sentence in str(stopped.value)
    assert "hunter2" not in str(stopped.value)


def test_a_missing_env_file_stops_the_start(tmp_path):
    """--env-file with a file that isn't there ends the process with 1 and its name."""
    ended = subprocess.run([PROGRAM, "--env-file", "none.env"], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"none.env given by --env-file does not exist" in ended.stderr


def test_broken_plugins_are_left_out_and_the_others_serve(environment, tmp_path):
    """What fails to import, configure or register, or takes a name that is taken, is left out with its reason."""
    write_plugin(tmp_path, "missing", "import no_such_module")
    write_plugin(tmp_path, "leaving", "raise SystemExit(3)")
    write_plugin(tmp_path, "configured", CONFIGURED)
    write_plugin(tmp_path, "unregistered", UNREGISTERED)
    write_plugin(tmp_path, "thief", OFFERING.format(name="thief", tool="get_document"))
    write_plugin(tmp_path, "search", OFFERING.format(name="search", tool="other"), module="false_search")
    write_plugin(tmp_path, "works", OFFERING.format(name="works", tool="work"))
    expected = {
        "missing": "ModuleNotFoundError: No module named 'no_such_module'",
        "leaving": "SystemExit: 3",
        "configured": "its settings are wrong: width: Input should be a valid integer, unable to parse string as an "
        "integer",
        "unregistered": "RuntimeError: not today",
        "thief": "its tool get_document is already offered by philorag",
        "search": "the toolset search is already provided by philorag",
    }
    with serving(tmp_path, {**environment, "PHILORAG_PLUGIN_CONFIGURED_WIDTH": "hunter2"}) as server:
        server.greet()
        tools = server.tools()
        assert tools.count("get_document") == 1
        assert "other" not in tools
        assert server.call("work") == {"done": True}
        status = server.call("gateway_status")
        assert server.end() == 0
        log = server.log()
    states = {one["toolset"]: one["problem"] for one in status["plugins"] if one["distribution"] != "philorag"}
    assert states == {**expected, "works": None}
    for name, problem in expected.items():
        assert f"The plugin {name} (" in log
        assert problem in log
    assert "hunter2" not in log


def test_read_only_hides_every_writer_and_toolsets_narrow(environment, tmp_path):
    """With PHILORAG_READ_ONLY only readers are listed and callable, of the toolsets that were asked for."""
    settings = {"PHILORAG_READ_ONLY": "true", "PHILORAG_TOOLSETS": "store,ingest"}
    (tmp_path / "mine.env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with serving(tmp_path, environment, "--env-file", "mine.env") as server:
        server.greet()
        assert set(server.tools()) == {"gateway_status", "query_similar_chunks", "get_document_metadata"}
        for writer in WRITERS:
            assert server.call(writer)["error"]["message"].startswith(f'There is no tool "{writer}".')
        assert server.end() == 0


def test_the_version_is_told():
    """--version prints the version and ends."""
    ended = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True)
    assert ended.stdout.startswith(b"philorag ")
