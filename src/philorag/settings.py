"""One validated `Settings`, read from the environment and at most one `.env` file of the operator's choosing."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from dotenv import dotenv_values
from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from philorag.errors import ConfigurationError

__all__ = ["PLUGIN_PREFIX", "WITHOUT_EFFECT", "Settings", "load_settings", "variable_names"]

PLUGIN_PREFIX = "PHILORAG_PLUGIN_"
WITHOUT_EFFECT = ("DB_MCP_SERVER_NAME", "BACKEND_API_URL")

Names = Annotated[tuple[str, ...], NoDecode]


def _named(*variables: str, default: Any, description: str, **bounds: Any) -> Any:
    return Field(default=default, validation_alias=AliasChoices(*variables), description=description, **bounds)


class Settings(BaseSettings):
    """Everything that an operator can set; each field's description is the reference text."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True, populate_by_name=True, frozen=True)

    data_dir: Path = _named(
        "PHILORAG_DATA_DIR",
        default=Path(platformdirs.user_data_dir("philorag", appauthor=False)),
        description="Folder of the embedded database and caches (default: the user's data folder).",
    )
    library_dir: Path | None = _named(
        "PHILORAG_LIBRARY_DIR",
        default=None,
        description="Folder with `documents/` and `generated/` (default: `library` in the data folder).",
    )
    source_dir: Path | None = _named(
        "PHILORAG_SOURCE_DIR",
        "SOURCE_FILE_DIR",
        default=None,
        description="What `philograph_ingest` and `process_text_file` may read (default: the library's `documents/`).",
    )
    library: str = _named(
        "PHILORAG_LIBRARY",
        default="local",
        description="The current library over stdio and in the command line.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
    )
    database_url: str | None = _named(
        "DATABASE_URL",
        default=None,
        description="The operator's PostgreSQL 15+ with pgvector (default: the embedded one).",
        pattern=r"^postgres(ql)?(\+asyncpg)?://",
        repr=False,
    )
    migrate_url: str | None = _named(
        "PHILORAG_MIGRATE_URL",
        default=None,
        description="The schema owner's connection, for migrations (default: the serving one).",
        pattern=r"^postgres(ql)?(\+asyncpg)?://",
        repr=False,
    )
    pg_host: str | None = _named("PGHOST", default=None, description="Host of the operator's PostgreSQL.")
    pg_port: int | None = _named("PGPORT", default=None, description="Its port (5432).", ge=1, le=65535)
    pg_database: str | None = _named("PGDATABASE", default=None, description="Its database (`philosophy_rag`).")
    pg_user: str | None = _named("PGUSER", default=None, description="Its user (`rag_agent_user`).")
    pg_password: str | None = _named(
        "PGPASSWORD",
        default=None,
        description="The password; needed as soon as any of the other `PG*` is set.",
        repr=False,
    )
    embedding_provider: Literal["local"] = _named(
        "PHILORAG_EMBEDDING_PROVIDER", default="local", description="Which embedding model: `local` runs in process."
    )
    embedding_threads: int = _named(
        "PHILORAG_EMBEDDING_THREADS",
        default=max(1, min(4, os.cpu_count() or 1)),
        description="Threads of the local embedding model (default: the processors, up to 4).",
        ge=1,
        le=64,
    )
    reader_timeout: float = _named(
        "PHILORAG_READER_TIMEOUT", default=120.0, description="Seconds that reading one file may take.", gt=0, le=3600
    )
    reader_memory: int = _named(
        "PHILORAG_READER_MEMORY",
        default=256,
        description="Megabytes that the process reading one file may use.",
        ge=64,
        le=16384,
    )
    chunk_size: int | None = _named(
        "CHUNK_SIZE",
        default=None,
        description="Tokens of a passage, in the embedding model's own (default by model: local 256).",
        ge=16,
        le=8192,
    )
    chunk_overlap: int | None = _named(
        "CHUNK_OVERLAP",
        default=None,
        description="Tokens that a passage repeats of the one before (default by model: local 32).",
        ge=0,
        le=4096,
    )
    toolsets: Names | None = _named(
        "PHILORAG_TOOLSETS", default=None, description="Toolsets to offer, separated by commas (default: all)."
    )
    plugins_disabled: Names = _named(
        "PHILORAG_PLUGINS_DISABLED", default=(), description="Plugins not to load, separated by commas."
    )
    read_only: bool = _named("PHILORAG_READ_ONLY", default=False, description="Hide every tool that writes.")
    search_max_results: int = _named(
        "PHILORAG_SEARCH_MAX_RESULTS", default=10, description="Results of a search that names no limit.", ge=1, le=100
    )
    search_similarity_threshold: float = _named(
        "PHILORAG_SIMILARITY_THRESHOLD",
        default=0.6,
        description="Least similarity of a result of `search_documents`.",
        ge=0,
        le=1,
    )
    http_host: str = _named(
        "PHILORAG_HTTP_HOST",
        default="127.0.0.1",
        description="Where `philorag-mcp --http` listens; only this machine's own addresses while there are no tokens.",
    )
    http_port: int = _named(
        "PHILORAG_HTTP_PORT", default=8765, description="Its port; 0 takes any free one.", ge=0, le=65535
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = _named(
        "LOG_LEVEL", default="INFO", description="How much is logged: DEBUG, INFO, WARNING or ERROR."
    )
    log_file: Path | None = _named(
        "PHILORAG_LOG_FILE", default=None, description="Where the log goes (default: standard error)."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del settings_cls, file_secret_settings
        return init_settings, env_settings, dotenv_settings

    @field_validator("toolsets", "plugins_disabled", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("data_dir", "library_dir", "source_dir", "log_file", mode="after")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else Path(os.path.abspath(value.expanduser()))  # noqa: PTH100 - keeps links

    @model_validator(mode="after")
    def _needs_password(self) -> Settings:
        given = (self.pg_host, self.pg_port, self.pg_database, self.pg_user)
        if self.database_url is None and self.pg_password is None and any(value is not None for value in given):
            raise ValueError(
                "PGPASSWORD is missing: a PG* variable chooses your own PostgreSQL, so set PGPASSWORD too, "
                "or unset every PG* to use the embedded database"
            )
        return self

    @model_validator(mode="after")
    def _overlap_below_size(self) -> Settings:
        size, overlap = self.chunk_size, self.chunk_overlap
        if size is not None and overlap is not None and overlap >= size:
            raise ValueError(f"CHUNK_OVERLAP ({overlap}) must be smaller than CHUNK_SIZE ({size})")
        return self

    @property
    def uses_embedded_database(self) -> bool:
        return self.database_url is None and self.pg_password is None

    @property
    def library_folder(self) -> Path:
        return self.library_dir or self.data_dir / "library"

    @property
    def source_folder(self) -> Path:
        return self.source_dir or self.library_folder / "documents"


def variable_names() -> dict[str, tuple[str, ...]]:
    """Every field of `Settings` with its variables, the current name first."""
    return {
        name: tuple(str(choice) for choice in field.validation_alias.choices)
        for name, field in Settings.model_fields.items()
        if isinstance(field.validation_alias, AliasChoices)
    }


def load_settings(env_file: Path | None = None) -> Settings:
    """The settings of this process: the environment over *env_file*, by default `.env` in the data folder.

    A `.env` of the working folder is never read. Raises `ConfigurationError` for an unknown `PHILORAG_*` variable,
    for two names of one setting that disagree, and for a value that can't be used.
    """
    if env_file is not None and not env_file.is_file():
        raise ConfigurationError(f"The file {env_file} given by --env-file does not exist.", argument="--env-file")
    chosen = env_file or _default_env_file()
    given = {**dotenv_values(chosen), **os.environ} if chosen.is_file() else dict(os.environ)
    _refuse_unknown(given)
    _refuse_conflicts(given)
    try:
        return Settings(_env_file=chosen)  # type: ignore[call-arg]  # pydantic-settings' own argument
    except ValidationError as error:
        raise ConfigurationError(_explain(error)) from error


def _default_env_file() -> Path:
    folder = os.environ.get("PHILORAG_DATA_DIR") or Settings.model_fields["data_dir"].default
    return Path(folder).expanduser() / ".env"


def _refuse_unknown(given: Mapping[str, str | None]) -> None:
    known = {variable for variables in variable_names().values() for variable in variables}
    for variable in sorted(given):
        name = variable.upper()
        if not name.startswith("PHILORAG_") or name.startswith(PLUGIN_PREFIX) or name in known:
            continue
        nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
        raise ConfigurationError(
            f"Unknown setting {variable}. Did you mean {nearest}? Unset it, or correct its name.", argument=variable
        )


def _refuse_conflicts(given: Mapping[str, str | None]) -> None:
    for variables in variable_names().values():
        values = {variable: given[variable] for variable in variables if given.get(variable)}
        if len(set(values.values())) > 1:
            raise ConfigurationError(
                f"{' and '.join(values)} are two names of one setting and disagree. Keep {variables[0]} alone.",
                argument=variables[0],
            )


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    problem = first["msg"].removeprefix("Value error, ")
    return f"{first['loc'][0]}: {problem}." if first["loc"] else f"{problem}."
