"""Settings: where they come from, and what stops the start."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from philorag.errors import ConfigurationError
from philorag.settings import Settings, load_settings, variable_names


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The data folder, which is the working folder too."""
    monkeypatch.setenv("PHILORAG_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal() -> Any:
    with pytest.raises(ConfigurationError) as stopped:
        load_settings()
    return stopped.value.message


def test_nothing_configured_is_the_embedded_database(folder):
    """Without settings there are the embedded database, the library `local` and its folders below the data folder."""
    settings = load_settings()
    assert settings.uses_embedded_database
    assert settings.library == "local"
    assert settings.source_folder == folder / "library" / "documents"
    assert (settings.search_max_results, settings.search_similarity_threshold) == (10, 0.6)
    assert (settings.reader_timeout, settings.reader_memory, settings.log_level) == (120, 256, "INFO")


def test_the_sources_are_below_the_library(monkeypatch, folder):
    """A library folder moves its `documents`, and a source folder is what it is."""
    monkeypatch.setenv("PHILORAG_LIBRARY_DIR", str(folder / "books"))
    assert load_settings().source_folder == folder / "books" / "documents"
    monkeypatch.setenv("PHILORAG_SOURCE_DIR", str(folder / "papers"))
    assert load_settings().source_folder == folder / "papers"


@pytest.mark.parametrize("variable", ["PGHOST", "PGPORT", "PGDATABASE", "PGUSER"])
def test_a_database_of_one_s_own_needs_a_password(monkeypatch, variable):
    """Any PG* variable without PGPASSWORD stops the start, and says so."""
    monkeypatch.setenv(variable, "5433")
    assert refusal().startswith("PGPASSWORD is missing")


def test_a_password_alone_chooses_ones_own_database(monkeypatch):
    """PGPASSWORD is enough for the operator's PostgreSQL."""
    monkeypatch.setenv("PGPASSWORD", "x")
    assert not load_settings().uses_embedded_database


def test_a_url_needs_no_password_of_its_own(monkeypatch):
    """With DATABASE_URL the PG* variables need no password."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://h/d")
    monkeypatch.setenv("PGHOST", "h")
    assert not load_settings().uses_embedded_database


def test_an_unknown_variable_is_named_with_its_nearest(monkeypatch):
    """An unknown PHILORAG_ variable stops the start with the nearest known name."""
    monkeypatch.setenv("PHILORAG_TOOLSET", "search")
    assert (
        refusal() == "Unknown setting PHILORAG_TOOLSET. Did you mean PHILORAG_TOOLSETS? Unset it, or correct its name."
    )


def test_variables_of_plugins_are_theirs(monkeypatch):
    """PHILORAG_PLUGIN_* is never unknown."""
    monkeypatch.setenv("PHILORAG_PLUGIN_WHATEVER_WIDTH", "1")
    load_settings()


def test_two_names_that_disagree_stop_the_start(monkeypatch):
    """A setting and its older name with two values stop the start, naming both."""
    monkeypatch.setenv("PHILORAG_SOURCE_DIR", "/a")
    monkeypatch.setenv("SOURCE_FILE_DIR", "/b")
    assert "PHILORAG_SOURCE_DIR and SOURCE_FILE_DIR are two names of one setting" in refusal()


def test_two_names_that_agree_are_one(monkeypatch):
    """A setting and its older name with one value are fine."""
    monkeypatch.setenv("PHILORAG_SOURCE_DIR", "/a")
    monkeypatch.setenv("SOURCE_FILE_DIR", "/a")
    assert load_settings().source_folder == Path("/a")


def test_an_older_name_alone_works(monkeypatch):
    """The older servers' name of a setting sets it."""
    monkeypatch.setenv("SOURCE_FILE_DIR", "/b")
    assert load_settings().source_folder == Path("/b")


def test_the_env_file_of_the_data_folder_is_read(folder):
    """`.env` in the data folder holds settings."""
    (folder / ".env").write_text("PHILORAG_LIBRARY=plato\n")
    assert load_settings().library == "plato"


def test_the_env_file_of_the_working_folder_is_not_read(folder, monkeypatch):
    """A workspace can't set anything with a `.env` of its own."""
    workspace = folder / "workspace"
    workspace.mkdir()
    (workspace / ".env").write_text("DATABASE_URL=postgresql://evil/d\nPHILORAG_NONSENSE=1\n")
    monkeypatch.chdir(workspace)
    assert load_settings().uses_embedded_database


def test_the_given_env_file_replaces_that_of_the_data_folder(folder):
    """--env-file is read instead of `.env` in the data folder."""
    (folder / ".env").write_text("PHILORAG_LIBRARY=plato\nPHILORAG_READ_ONLY=true\n")
    (folder / "mine.env").write_text("PHILORAG_LIBRARY=kant\n")
    settings = load_settings(folder / "mine.env")
    assert (settings.library, settings.read_only) == ("kant", False)


def test_a_given_env_file_must_exist(folder):
    """--env-file with a file that isn't there stops the start."""
    with pytest.raises(ConfigurationError, match="--env-file does not exist"):
        load_settings(folder / "none.env")


def test_the_environment_wins_over_the_file(folder, monkeypatch):
    """A variable of the environment is stronger than the file's."""
    (folder / ".env").write_text("PHILORAG_LIBRARY=plato\n")
    monkeypatch.setenv("PHILORAG_LIBRARY", "kant")
    assert load_settings().library == "kant"


def test_an_older_name_in_the_environment_conflicts_with_the_file(folder, monkeypatch):
    """Two names that disagree stop the start also when one stands in the file."""
    (folder / ".env").write_text("PHILORAG_SOURCE_DIR=/a\n")
    monkeypatch.setenv("SOURCE_FILE_DIR", "/b")
    assert "two names of one setting" in refusal()


def test_an_unknown_variable_in_the_file_stops_the_start(folder):
    """The file's variables are checked like the environment's."""
    (folder / ".env").write_text("PHILORAG_LIBARY=plato\n")
    assert "Did you mean PHILORAG_LIBRARY?" in refusal()


def test_an_env_file_that_is_no_text_stops_the_start(folder):
    """A file of settings that isn't UTF-8 stops the start with a sentence."""
    (folder / ".env").write_bytes(b"PHILORAG_LIBRARY=\xff\n")
    assert ".env" in refusal()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PHILORAG_LIBRARY", "../x"),
        ("DATABASE_URL", "mysql://h/d"),
        ("PGPORT", "0"),
        ("PHILORAG_SIMILARITY_THRESHOLD", "2"),
        ("PHILORAG_SEARCH_MAX_RESULTS", "0"),
        ("PHILORAG_READ_ONLY", "perhaps"),
        ("LOG_LEVEL", "loud"),
        ("CHUNK_SIZE", "1"),
        ("PHILORAG_EMBEDDING_PROVIDER", "magic"),
        ("PHILORAG_READER_TIMEOUT", "nan"),
    ],
)
def test_a_value_out_of_bounds_is_named(monkeypatch, variable, value):
    """A value that can't be used stops the start with the variable's name."""
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PGPASSWORD", "x")
    assert refusal().startswith(f"{variable}: ")


def test_a_refused_value_is_not_repeated(monkeypatch):
    """A refusal never shows the value: it may be a password."""
    monkeypatch.setenv("DATABASE_URL", "mysql://u:hunter2@h/d")
    assert "hunter2" not in refusal()


def test_secrets_are_not_printed(monkeypatch):
    """Neither URL nor password is in what a settings object prints as."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("PHILORAG_MIGRATE_URL", "postgresql://o:hunter2@h/d")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    assert "hunter2" not in repr(load_settings())


def test_an_overlap_is_smaller_than_a_passage(monkeypatch):
    """CHUNK_OVERLAP that isn't below CHUNK_SIZE stops the start."""
    monkeypatch.setenv("CHUNK_SIZE", "100")
    monkeypatch.setenv("CHUNK_OVERLAP", "100")
    assert "CHUNK_OVERLAP (100) must be smaller than CHUNK_SIZE (100)" in refusal()


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("CHUNK_OVERLAP", "256", "CHUNK_OVERLAP (256) must be smaller than CHUNK_SIZE (256)"),
        ("CHUNK_SIZE", "481", "CHUNK_SIZE (481) is more than the local model can take: at most 480 tokens"),
    ],
)
def test_passages_fit_the_local_model(monkeypatch, variable, value, sentence):
    """A passage that the local model would cut, or an overlap of its usual length, stops the start."""
    monkeypatch.setenv(variable, value)
    assert sentence in refusal()


def test_lists_are_separated_by_commas(monkeypatch):
    """Names of toolsets are separated by commas, with or without spaces."""
    monkeypatch.setenv("PHILORAG_TOOLSETS", "search, documents,")
    assert load_settings().toolsets == ("search", "documents")


def test_an_empty_variable_is_not_set(monkeypatch):
    """An empty value counts as none, as in a client's configuration form."""
    monkeypatch.setenv("PHILORAG_LIBRARY", "")
    monkeypatch.setenv("DATABASE_URL", "")
    assert load_settings().library == "local"
    assert load_settings().uses_embedded_database


def test_folders_begin_at_home_or_here(monkeypatch, folder):
    """`~` is the home folder, and a relative path becomes an absolute one."""
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PHILORAG_SOURCE_DIR", "~/books")
    monkeypatch.setenv("PHILORAG_LIBRARY_DIR", "library")
    settings = load_settings()
    assert settings.source_dir == folder / "books"
    assert settings.library_dir == folder / "library"


def test_log_levels_are_read_in_any_case(monkeypatch):
    """`debug` is DEBUG."""
    monkeypatch.setenv("LOG_LEVEL", "debug")
    assert load_settings().log_level == "DEBUG"


def test_every_setting_is_described():
    """Every setting has a variable and a description that ends in a full stop."""
    assert set(variable_names()) == set(Settings.model_fields)
    assert all(str(field.description).endswith(".") for field in Settings.model_fields.values())


def test_settings_do_not_change():
    """A settings object is frozen."""
    with pytest.raises(ValidationError):
        load_settings().library = "other"
