"""One validated `Settings`, read from the environment and at most one `.env` file of the operator's choosing."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import platformdirs
from dotenv import dotenv_values
from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from philorag.errors import ConfigurationError

__all__ = [
    "ENDPOINT_CHUNK_SIZE",
    "LOCAL_CHUNK_SIZE",
    "LOCAL_LONGEST",
    "PLUGIN_PREFIX",
    "WITHOUT_EFFECT",
    "Settings",
    "load_settings",
    "variable_names",
]

PLUGIN_PREFIX = "PHILORAG_PLUGIN_"
LOCAL_CHUNK_SIZE, ENDPOINT_CHUNK_SIZE = 256, 1000
# multilingual-e5-small takes 512 tokens, its prefix and special ones included.
LOCAL_LONGEST = 480
WITHOUT_EFFECT = ("DB_MCP_SERVER_NAME", "BACKEND_API_URL")

Names = Annotated[tuple[str, ...], NoDecode]


def _named(*variables: str, default: Any, description: str, **bounds: Any) -> Any:
    return Field(default=default, validation_alias=AliasChoices(*variables), description=description, **bounds)


class Settings(BaseSettings):
    """Everything that an operator can set; each field's description is the reference text."""

    model_config = SettingsConfigDict(
        extra="ignore", env_ignore_empty=True, populate_by_name=True, frozen=True, hide_input_in_errors=True
    )

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
    embedding_provider: Literal["local", "openai"] | None = _named(
        "PHILORAG_EMBEDDING_PROVIDER",
        default=None,
        description="Where embeddings come from: `local` runs in process, `openai` is any endpoint with OpenAI's "
        "interface (default: `openai` when an embedding key or base URL is set, else `local`; `OPENAI_API_KEY` "
        "chooses nothing).",
    )
    embedding_api_key: str | None = _named(
        "PHILORAG_EMBEDDING_API_KEY",
        "EMBEDDING_API_KEY",
        default=None,
        description="The endpoint's key; one of your own may need none.",
        repr=False,
    )
    embedding_base_url: str | None = _named(
        "PHILORAG_EMBEDDING_BASE_URL",
        default=None,
        description="The endpoint's address up to `/v1`, such as `http://127.0.0.1:11434/v1` for Ollama (default: "
        "OpenAI's).",
        repr=False,
    )
    embedding_model: str = _named(
        "PHILORAG_EMBEDDING_MODEL",
        "EMBEDDING_MODEL_NAME",
        default="text-embedding-3-small",
        description="The endpoint's model; of no effect on the local one.",
        min_length=1,
        max_length=200,
    )
    embedding_dimensions: int | None = _named(
        "PHILORAG_EMBEDDING_DIMENSIONS",
        default=None,
        description="Length of the endpoint's vectors, which it is asked for (default: the model's own, found by "
        "embedding a word at the start).",
        ge=1,
        le=4000,
    )
    embedding_batch: int = _named(
        "PHILORAG_EMBEDDING_BATCH",
        default=32,
        description="Passages that are given to the model at once.",
        ge=1,
        le=2048,
    )
    embedding_query_prefix: str = _named(
        "PHILORAG_EMBEDDING_QUERY_PREFIX",
        default="",
        description="What the endpoint's model wants before a query, such as `query: `; quote it to keep the space.",
        max_length=1000,
    )
    embedding_passage_prefix: str = _named(
        "PHILORAG_EMBEDDING_PASSAGE_PREFIX",
        default="",
        description="What it wants before a passage, such as `passage: `; part of the space's identity.",
        max_length=1000,
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
        description="Tokens of a passage, in the embedding model's own (default by model: local 256, endpoint 1000).",
        ge=16,
        le=8192,
    )
    chunk_overlap: int | None = _named(
        "CHUNK_OVERLAP",
        default=None,
        description="Tokens that a passage repeats of the one before (default by model: local 32, endpoint 100).",
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

    @field_validator("embedding_api_key", mode="after")
    @classmethod
    def _sendable_key(cls, value: str | None) -> str | None:
        key = None if value is None else value.strip()
        if key is not None and not re.fullmatch(r"[!-~]+", key):
            raise ValueError("must be one word of plain ASCII, as the endpoint gave it to you")
        return key

    @field_validator("embedding_base_url", mode="after")
    @classmethod
    def _plain_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be an address such as https://api.openai.com/v1")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("must hold neither a user nor a query; the key has a setting of its own")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _endpoint_is_known(self) -> Settings:
        if self.uses_embedding_endpoint and not (self.embedding_api_key or self.embedding_base_url):
            raise ValueError(
                "PHILORAG_EMBEDDING_API_KEY is missing: OpenAI's endpoint needs it (OPENAI_API_KEY isn't used). "
                "For an endpoint of your own set PHILORAG_EMBEDDING_BASE_URL"
            )
        return self

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
    def _passages_fit(self) -> Settings:
        local = not self.uses_embedding_endpoint
        size = self.chunk_size or (LOCAL_CHUNK_SIZE if local else ENDPOINT_CHUNK_SIZE)
        overlap = self.chunk_overlap
        if local and size > LOCAL_LONGEST:
            raise ValueError(
                f"CHUNK_SIZE ({size}) is more than the local model can take: at most {LOCAL_LONGEST} tokens"
            )
        if overlap is not None and overlap >= size:
            raise ValueError(f"CHUNK_OVERLAP ({overlap}) must be smaller than CHUNK_SIZE ({size})")
        return self

    @property
    def uses_embedded_database(self) -> bool:
        return self.database_url is None and self.pg_password is None

    @property
    def uses_embedding_endpoint(self) -> bool:
        if self.embedding_provider is None:
            return bool(self.embedding_api_key or self.embedding_base_url)
        return self.embedding_provider == "openai"

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
    given = {**_read(chosen), **os.environ}
    _refuse_unknown(given)
    _refuse_conflicts(given)
    try:
        return Settings(_env_file=chosen)  # type: ignore[call-arg]  # pydantic-settings' own argument
    except ValidationError as error:
        raise ConfigurationError(_explain(error)) from error


def _default_env_file() -> Path:
    folder = os.environ.get("PHILORAG_DATA_DIR") or Settings.model_fields["data_dir"].default
    return Path(folder).expanduser() / ".env"


def _read(env_file: Path) -> dict[str, str | None]:
    try:
        return dotenv_values(env_file) if env_file.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The file {env_file} can't be read: it must be UTF-8, and readable.") from error


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
