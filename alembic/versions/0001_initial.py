"""The tables, partitions, policies and functions that everything else stands on.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PARTITIONS = 16
PARTITIONED = ("documents", "document_tags", "chunks", "chunk_embeddings", "lex_postings", "canonical_refs")
OWNED = (*PARTITIONED, "lex_statistics", "jobs", "roots")

EXTENSION = "create extension if not exists vector"

# What a missing, empty or malformed setting names is no library, and says nothing about why.
CURRENT_LIBRARY = """
create function philorag_current_library() returns bigint language sql stable parallel safe as $$
    select case when current_setting('philorag.library_id', true) ~ '^[0-9]{1,18}$'
                then current_setting('philorag.library_id', true)::bigint end
$$
"""

TABLES = """
create table embedding_spaces (
    id bigint generated always as identity primary key,
    provider text not null,
    model text not null,
    revision text not null,
    dimensions integer not null check (dimensions between 1 and 4000),
    folding text not null,
    calibration jsonb,
    created_at timestamptz not null default now(),
    unique (provider, model, revision, dimensions, folding)
);

create table libraries (
    id bigint generated always as identity primary key,
    name text not null unique,
    settings jsonb not null default '{}',
    active_space_id bigint references embedding_spaces (id),
    created_at timestamptz not null default now()
);

create sequence documents_id_seq;
create table documents (
    library_id bigint not null references libraries (id) on delete cascade,
    id bigint not null default nextval('documents_id_seq'),
    kind text not null check (kind in ('captured', 'generated', 'material')),
    origin text not null,
    source_uri text not null,
    path text,
    title text,
    authors jsonb not null default '[]',
    publication_date text,
    publication_day date,
    language text,
    category text,
    tags jsonb not null default '[]',
    metadata_jsonb jsonb not null default '{}',
    extracted_text_hash text,
    content text not null default '',
    content_sha256 text,
    source_sha256 text,
    source_size bigint,
    source_mtime_ns bigint,
    word_count integer not null default 0,
    version integer not null default 1,
    pipeline_version text,
    user_id text,
    task_id text,
    created_at timestamptz not null default now(),
    modified_at timestamptz not null default now(),
    last_processed_at timestamptz,
    primary key (library_id, id),
    unique (library_id, source_uri),
    unique (library_id, path)
) partition by hash (library_id);

create table document_tags (
    library_id bigint not null,
    document_id bigint not null,
    tag text not null,
    primary key (library_id, tag, document_id),
    foreign key (library_id, document_id) references documents (library_id, id) on delete cascade
) partition by hash (library_id);
create index on document_tags (library_id, document_id);

create sequence chunks_id_seq;
create table chunks (
    library_id bigint not null,
    id bigint not null default nextval('chunks_id_seq'),
    document_id bigint not null,
    chunk_index integer not null,
    chunk_text text not null,
    cleaned_text text not null,
    content_hash text not null,
    char_start integer not null,
    char_end integer not null,
    token_count integer not null,
    layer text not null,
    language text,
    analyzer text not null,
    locator jsonb not null,
    section_path jsonb not null default '[]',
    primary key (library_id, id),
    unique (library_id, document_id, chunk_index),
    foreign key (library_id, document_id) references documents (library_id, id) on delete cascade
) partition by hash (library_id);

create table chunk_embeddings (
    library_id bigint not null,
    chunk_id bigint not null,
    space_id bigint not null references embedding_spaces (id),
    embedding vector not null,
    primary key (library_id, chunk_id, space_id),
    foreign key (library_id, chunk_id) references chunks (library_id, id) on delete cascade
) partition by hash (library_id);

create table lex_postings (
    library_id bigint not null references libraries (id) on delete cascade,
    analyzer text not null,
    term text not null,
    first_chunk bigint not null,
    last_chunk bigint not null,
    postings bigint[] not null,
    primary key (library_id, analyzer, term, first_chunk)
) partition by hash (library_id);

create table lex_statistics (
    library_id bigint not null references libraries (id) on delete cascade,
    analyzer text not null,
    chunks bigint not null,
    tokens bigint not null,
    uncompacted bigint not null default 0,
    primary key (library_id, analyzer)
);

create sequence canonical_refs_id_seq;
create table canonical_refs (
    library_id bigint not null,
    id bigint not null default nextval('canonical_refs_id_seq'),
    document_id bigint not null,
    chunk_id bigint not null,
    system text not null,
    value text not null,
    char_start integer not null,
    char_end integer not null,
    primary key (library_id, id),
    foreign key (library_id, document_id) references documents (library_id, id) on delete cascade,
    foreign key (library_id, chunk_id) references chunks (library_id, id) on delete cascade
) partition by hash (library_id);
create index on canonical_refs (library_id, system, value);
create index on canonical_refs (library_id, chunk_id);
create index on canonical_refs (library_id, document_id);

create sequence jobs_id_seq;
create table jobs (
    library_id bigint not null references libraries (id) on delete cascade,
    id bigint not null default nextval('jobs_id_seq'),
    kind text not null,
    arguments_hash text not null,
    arguments jsonb not null default '{}',
    state text not null check (state in ('running', 'completed', 'failed', 'cancelled')),
    progress jsonb not null default '{}',
    failures jsonb not null default '[]',
    result jsonb,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    finished_at timestamptz,
    primary key (library_id, id)
);

create table roots (
    library_id bigint not null references libraries (id) on delete cascade,
    name text not null,
    folder text not null,
    created_at timestamptz not null default now(),
    primary key (library_id, name),
    unique (library_id, folder)
);
"""

# Every search reads vectors whole: compressing never helps, and out of line an exact scan takes eight times as long.
STORAGE = "alter table chunk_embeddings alter column embedding set storage main"

# Stop words stay: to a philosopher "being", "will" and "not" are content, and BM25 weighs common words down by itself.
ANALYZERS = """
do $$
declare stemmer text;
begin
    foreach stemmer in array array['english', 'german', 'french', 'italian', 'spanish', 'dutch', 'portuguese', 'greek',
                                   'russian', 'danish', 'swedish', 'norwegian', 'finnish'] loop
        execute format('create text search dictionary philorag_%1$s (template = snowball, language = %1$s)', stemmer);
        execute format('create text search configuration philorag_%1$s (copy = pg_catalog.simple)', stemmer);
        execute format('alter text search configuration philorag_%1$s '
                       'alter mapping for asciiword, word with philorag_%1$s', stemmer);
    end loop;
    create text search dictionary philorag_plain (template = simple);
    create text search configuration philorag_plain (copy = pg_catalog.simple);
    alter text search configuration philorag_plain alter mapping for asciiword, word with philorag_plain;
end $$
"""

OPEN_LIBRARY = """
create function philorag_open_library(wanted text) returns bigint
language plpgsql security definer set search_path = public, pg_temp as $$
declare found_id bigint;
begin
    select id into found_id from libraries where name = wanted;
    if found_id is null then
        insert into libraries (name) values (wanted) on conflict (name) do update set name = excluded.name
        returning id into found_id;
    end if;
    return found_id;
end $$
"""

OPEN_SPACE = """
create function philorag_open_space(
    wanted_provider text, wanted_model text, wanted_revision text, wanted_dimensions integer, wanted_folding text
) returns bigint language plpgsql security definer set search_path = public, pg_temp as $$
declare found_id bigint;
begin
    select id into found_id from embedding_spaces
     where (provider, model, revision, dimensions, folding)
         = (wanted_provider, wanted_model, wanted_revision, wanted_dimensions, wanted_folding);
    if found_id is null then
        insert into embedding_spaces (provider, model, revision, dimensions, folding)
        values (wanted_provider, wanted_model, wanted_revision, wanted_dimensions, wanted_folding)
        on conflict (provider, model, revision, dimensions, folding) do update set provider = excluded.provider
        returning id into found_id;
    end if;
    return found_id;
end $$
"""

# The serving role can't create indexes. Returns whether the space has its index afterwards.
INDEX_SPACE = """
create function philorag_index_space(wanted bigint) returns boolean
language plpgsql security definer set search_path = public, pg_temp as $$
declare length integer;
begin
    select dimensions into length from embedding_spaces where id = wanted;
    if length is null then return false; end if;
    perform pg_advisory_xact_lock(7483001, wanted::integer);
    execute format('create index if not exists chunk_embeddings_space_%1$s on chunk_embeddings '
                   'using hnsw ((embedding::halfvec(%2$s)) halfvec_cosine_ops) where space_id = %1$s', wanted, length);
    return true;
end $$
"""

# Since PostgreSQL 16 one may be a member of a role that one made, and still not be allowed to become it.
MAY_SET = "case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end"

# Roles belong to the server: another database that is being migrated may make it at the same time.
SERVING_ROLE = """
do $$
begin
    if not exists (select from pg_roles where rolname = 'philorag_app') then
        begin
            create role philorag_app nologin;
        exception when duplicate_object or unique_violation then null;
        end;
    end if;
    if not pg_has_role('philorag_app', {may_set}) then
        execute format('grant philorag_app to %I', current_user);
    end if;
exception when insufficient_privilege then
    raise warning 'philorag_app can''t be taken: the tables'' owner serves under forced row security';
end $$
"""

# Where the owner can't take the role it serves itself, and only forced row security binds it. `libraries` stays open to
# it, since philorag_open_library must find a library before there is a current one.
GRANTS = """
do $$
declare owned text;
begin
    revoke execute on function philorag_open_library, philorag_open_space, philorag_index_space from public;
    if exists (select from pg_roles where rolname = 'philorag_app') then
        grant usage on schema public to philorag_app;
        grant select, insert, update, delete on {owned} to philorag_app;
        grant select, update (active_space_id, settings) on libraries to philorag_app;
        grant select on embedding_spaces, alembic_version to philorag_app;
        grant usage on sequence documents_id_seq, chunks_id_seq, canonical_refs_id_seq, jobs_id_seq to philorag_app;
        grant execute on function philorag_open_library, philorag_open_space, philorag_index_space to philorag_app;
    end if;
    if not exists (select from pg_roles where rolname = 'philorag_app' and pg_has_role(oid, {may_set})) then
        foreach owned in array string_to_array('{owned}', ', ') loop
            execute format('alter table %I force row level security', owned);
        end loop;
    end if;
end $$
"""


def upgrade() -> None:
    op.execute(EXTENSION)
    op.execute(SERVING_ROLE.format(may_set=MAY_SET))
    op.execute(CURRENT_LIBRARY)
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
    op.execute(STORAGE)
    for table in PARTITIONED:
        for remainder in range(PARTITIONS):
            op.execute(
                f"create table {table}_p{remainder:02} partition of {table} "
                f"for values with (modulus {PARTITIONS}, remainder {remainder})"
            )
    for table in OWNED:
        _secure(table, "library_id")
    _secure("libraries", "id")
    for statement in (ANALYZERS, OPEN_LIBRARY, OPEN_SPACE, INDEX_SPACE):
        op.execute(statement)
    op.execute(GRANTS.format(owned=", ".join(OWNED), may_set=MAY_SET))


def _secure(table: str, column: str) -> None:
    op.execute(f"alter table {table} enable row level security")
    op.execute(
        f"create policy {table}_of_library on {table} "
        f"using ({column} = philorag_current_library()) with check ({column} = philorag_current_library())"
    )
