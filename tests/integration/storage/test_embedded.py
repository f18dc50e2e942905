"""The launcher against a real PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import psutil
import pytest

from philorag.errors import ConfigurationError, DatabaseUnavailable
from philorag.storage.embedded import ConnectionParameters, EmbeddedPostgres, _binaries, _cluster, _places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX accounts, signals and sockets")

FAST = {"fsync": "off"}
HELPER = Path(__file__).with_name("embedded_process.py")
IS_ROOT = sys.platform != "win32" and os.geteuid() == 0
NOBODY, STRANGER = 65534, 54321
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can act as other accounts")


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
    return result


async def ask(parameters: ConnectionParameters | dict[str, Any], *statements: str) -> list[Any]:
    values = asdict(parameters) if isinstance(parameters, ConnectionParameters) else parameters
    connection = await asyncpg.connect(**values, timeout=20)
    try:
        return [await connection.fetchval(statement) for statement in statements]
    finally:
        await connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def owner(path: Path) -> int:
    return path.lstat().st_uid


def names(folder: Path, pattern: str) -> list[str]:
    return [path.name for path in folder.glob(pattern)]


def end_server(storage: Path) -> None:
    """Whatever a test left running on files below *storage*, found by its command line, goes at once."""
    for process in psutil.process_iter(["cmdline"]):
        if any(word.startswith(f"{storage}/") for word in process.info["cmdline"] or []):
            with suppress(psutil.NoSuchProcess):
                process.kill()
    until(lambda: not any(str(storage) in " ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])))


Running = tuple[EmbeddedPostgres, ConnectionParameters]


@contextmanager
def data_folder(parent: Path) -> Iterator[Path]:
    path = parent / "home"
    yield path
    storage = _places.SERVICE_ROOT / _places._key(path.resolve()) if IS_ROOT else path
    end_server(storage)
    for folder in {path, storage}:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A data folder that is still to be made."""
    with data_folder(tmp_path) as path:
        yield path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A cluster that was made once and never runs."""
    with data_folder(tmp_path_factory.mktemp("template")) as path:
        with EmbeddedPostgres(path, settings=FAST) as database:
            pass
        yield database


def copy(template: EmbeddedPostgres, home: Path) -> EmbeddedPostgres:
    database = EmbeddedPostgres(home, settings=FAST)
    for source, target in {(template._places.home, home), (template.storage, database.storage)}:
        subprocess.run(["cp", "-a", source, target], check=True)
    return database


@pytest.fixture
def stopped(template: EmbeddedPostgres, home: Path) -> EmbeddedPostgres:
    """A server of the test's own that has run before."""
    return copy(template, home)


@pytest.fixture(scope="module")
def server(template: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A running server for tests that only look at it."""
    with data_folder(tmp_path_factory.mktemp("server")) as path, copy(template, path) as database:
        yield database, database.start()


@pytest.fixture
def ordinary_folder() -> Iterator[Path]:
    """A folder of an account that is not root; the server's files lie in its subfolders."""
    path = Path(tempfile.mkdtemp(prefix="philorag-test-", dir="/tmp"))
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
    yield path
    end_server(path)
    shutil.rmtree(path)


@pytest.fixture
def service_root() -> Iterator[Path]:
    """A folder like /var/lib/philorag for one test."""
    path = Path(tempfile.mkdtemp(prefix="philorag-test-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    end_server(path)
    shutil.rmtree(path)


@pytest.fixture
def hidden_programs(tmp_path: Path) -> Path:
    """The package's programs on a path that only root can follow."""
    tmp_path.chmod(0o700)
    package = _binaries._packaged().parents[1]
    for name in (package.name, f"{package.name}.libs"):
        (tmp_path / name).symlink_to(package.with_name(name))
    return tmp_path / package.name / "pginstall" / "bin"


@dataclass(frozen=True)
class Member:
    process: subprocess.Popen[str]
    parameters: dict[str, Any]
    pid: int
    storage: Path
    bin_dir: Path


def launch(home: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HELPER), json.dumps({"home": str(home), **options})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def joined(process: subprocess.Popen[str]) -> Member:
    assert process.stdout is not None
    answer = json.loads(process.stdout.readline())
    return Member(process, answer["parameters"], answer["pid"], Path(answer["storage"]), Path(answer["bin_dir"]))


def leave(process: subprocess.Popen[str]) -> None:
    process.communicate("leave\n", timeout=30)
    assert process.returncode == 0


@contextmanager
def members(*homes: Path, **options: Any) -> Iterator[list[Member]]:
    """Processes that start at the same time; those still there at the end leave."""
    with ExitStack() as stack:
        processes = [launch(home, **options) for home in homes]
        for process in processes:
            stack.callback(process.communicate, timeout=30)
        yield [joined(process) for process in processes]


@contextmanager
def ordinary_member(home: Path) -> Iterator[Member]:
    with members(home, uid=NOBODY if IS_ROOT else None) as (member,):
        yield member


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_cold_start_makes_the_database(home: Path) -> None:
    """A first start gives a UTF-8 database owned by its role, with checksums, a fixed locale and our settings."""
    with EmbeddedPostgres(home, settings=FAST) as database:
        parameters = database.start()
        shown = await ask(
            parameters,
            "SELECT current_database() || ' ' || current_user || ' ' || pg_encoding_to_char(encoding)"
            " || ' ' || datlocale || ' ' || datlocprovider::text || ' ' || datdba::regrole"
            " FROM pg_database WHERE datname = current_database()",
            *(
                f"SHOW {name}"
                for name in ("data_checksums", "jit", "hnsw.ef_search", "timezone", "shared_buffers", "max_connections")
            ),
        )
    assert shown == ["philorag philorag UTF8 C.UTF-8 b philorag", "on", "off", "100", "UTC", "128MB", "60"]


async def test_warm_restart_keeps_data(stopped: EmbeddedPostgres, home: Path) -> None:
    """What was written before a stop is there after the next start."""
    with stopped as database:
        await ask(database.start(), "CREATE TABLE kept AS SELECT 1 AS a")
    assert stopped.pid is None
    with EmbeddedPostgres(home, settings=FAST) as database:
        assert await ask(database.start(), "SELECT a FROM kept") == [1]


async def test_extensions_can_be_created(server: Running) -> None:
    """The shipped extensions load, and pgvector takes over the setting made before it was loaded."""
    _, parameters = server
    *_, distance, effort, plain = await ask(
        parameters,
        "CREATE EXTENSION vector",
        "CREATE EXTENSION unaccent",
        "CREATE EXTENSION pg_trgm",
        "SELECT '[1,2]'::vector <-> '[1,3]'::vector",
        "SHOW hnsw.ef_search",
        "SELECT unaccent('é')",
    )
    assert (distance, effort, plain) == (1.0, "100", "e")


async def test_the_shell_does_not_disturb_it(stopped: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that are meant for another PostgreSQL are not passed on."""
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGOPTIONS", "--nonsense")
    with stopped as database:
        assert database.pid is not None


async def test_wrong_password_is_refused(server: Running) -> None:
    """The socket asks for the password (SCRAM)."""
    _, parameters = server
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask({**asdict(parameters), "password": "guess"}, "SELECT 1")
    assert await ask(parameters, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules") == [
        "scram-sha-256"
    ]


def test_the_password_stays_private(server: Running) -> None:
    """The password lies in a file of mode 0600 and does not appear in a repr."""
    database, parameters = server
    assert mode(database._places.secret) == 0o600
    assert parameters.password == database._places.secret.read_text()
    assert parameters.password not in repr(parameters)


async def test_no_tcp(server: Running) -> None:
    """Nothing listens on a network address."""
    database, parameters = server
    assert await ask(parameters, "SHOW listen_addresses") == [""]
    try:
        found = psutil.Process(database.pid).net_connections(kind="inet")
    except psutil.AccessDenied:
        pytest.skip("a container's root may not look at another account's connections")
    assert [c.laddr for c in found if c.status == psutil.CONN_LISTEN] == []


def test_socket_and_cluster_have_private_modes(server: Running) -> None:
    """Only the server's account may enter the folders of socket and cluster."""
    database, parameters = server
    host = Path(parameters.host)
    assert [mode(host), mode(host / ".s.PGSQL.5432"), mode(database.storage / "pgdata")] == [0o700] * 3


@needs_root
def test_other_accounts_cannot_reach_the_socket(server: Running) -> None:
    """A connection by another account of the machine fails at the folder's door."""
    probe = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); os.setgroups([]); os.setgid(int(sys.argv[2]));"
        "os.setuid(int(sys.argv[2])); sys.exit(s.connect_ex(sys.argv[1]))"
    )
    _, parameters = server
    path = f"{parameters.host}/.s.PGSQL.5432"
    codes = [
        subprocess.run([sys.executable, "-S", "-c", probe, path, str(uid)], check=False).returncode
        for uid in (STRANGER, 0)
    ]
    assert codes == [13, 0]


async def test_last_of_two_processes_stops_the_server(stopped: EmbeddedPostgres, home: Path) -> None:
    """Two processes share one server, which outlives the first leaver but not the second."""
    with members(home) as (first,), members(home) as (second,):
        assert first.pid == second.pid
        leave(first.process)
        assert await ask(second.parameters, "SELECT 1") == [1]
        leave(second.process)
        assert gone(first.pid)


async def test_four_processes_race_for_a_cold_start(home: Path) -> None:
    """Four processes that start at once make one cluster and one server."""
    with members(*[home] * 4) as racing:
        assert len({member.pid for member in racing}) == 1
        assert len({member.parameters["password"] for member in racing}) == 1
        assert await ask(racing[-1].parameters, "SELECT 1") == [1]
    assert gone(racing[0].pid)


def test_objects_of_one_process_are_counted(stopped: EmbeddedPostgres, home: Path) -> None:
    """Within a process, too, the last object to leave stops the server; starting twice counts once."""
    databases = [EmbeddedPostgres(home, settings=FAST) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(EmbeddedPostgres.start, databases))) == 1
    databases[0].start()
    for database in databases[:-1]:
        database.stop()
        database.stop()
    assert databases[-1].pid is not None
    databases[-1].stop()
    assert databases[-1].pid is None


async def test_killed_postmaster_is_replaced(stopped: EmbeddedPostgres) -> None:
    """After a kill -9 of the server the next start waits for its children, recovers and keeps what was committed."""
    with stopped as database:
        await ask(database.start(), "CREATE TABLE kept AS SELECT 1 AS a")
        killed = database.pid
        psutil.Process(killed).kill()
        until(lambda: database.pid is None)
        assert await ask(database.ensure_running(), "SELECT a FROM kept") == [1]
        assert database.pid not in {killed, None}
    assert database.pid is None


def test_killed_process_does_not_keep_the_server(stopped: EmbeddedPostgres, home: Path) -> None:
    """A process killed with -9 loses its reference, its pipes close, and the last leaver stops the server."""
    with members(home) as (victim,), stopped as survivor:
        victim.process.kill()
        victim.process.communicate(timeout=10)
        assert survivor.pid == victim.pid
        survivor.stop()
        assert gone(victim.pid)
        assert list((home / "locks").glob("*.client")) == []


async def test_ordinary_account(ordinary_folder: Path) -> None:
    """Without root everything lies in the data folder and runs as the caller."""
    with ordinary_member(ordinary_folder / "home") as member:
        assert member.storage == ordinary_folder / "home"
        assert psutil.Process(member.pid).uids().effective == owner(ordinary_folder)
        assert await ask(member.parameters, "SELECT 1") == [1]
    assert gone(member.pid)


async def test_awkward_path(ordinary_folder: Path) -> None:
    """Spaces, quotes, commas, dollars, backslashes and Greek in the path do no harm."""
    with ordinary_member(ordinary_folder / """it's "α", $HOME `a` \\b; c""") as member:
        assert "," not in member.parameters["host"]
        assert await ask(member.parameters, "SELECT 1") == [1]
    assert gone(member.pid)


async def test_plain_spaces_keep_the_socket_at_home(ordinary_folder: Path) -> None:
    """A path that every client understands holds the socket itself."""
    home = ordinary_folder / "My Library"
    with ordinary_member(home) as member:
        assert member.parameters["host"] == f"{home}/run"
        assert await ask(member.parameters, "SELECT 1") == [1]


async def test_long_path(ordinary_folder: Path) -> None:
    """A path beyond a socket's limit gets a private folder elsewhere, which goes with the server."""
    with ordinary_member(ordinary_folder / ("long" * 20) / ("longer" * 10)) as member:
        host = Path(member.parameters["host"])
        assert ordinary_folder not in host.parents
        assert (0o700, owner(ordinary_folder)) == (mode(host), owner(host))
        assert await ask(member.parameters, "SELECT 1") == [1]
    assert names(host.parent, host.name) == []


def test_a_planted_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone else's link in the folder for temporary files does not get our socket."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp(prefix="t", dir="/tmp"))
    places = _places.Places(tmp_path, tmp_path / ("long" * 30), None)
    trap = Path(tempfile.gettempdir(), f"philorag-{places.key}")
    trap.symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match="not a folder of the server's own account"):
        _places.socket_directory(places)
    shutil.rmtree(trap.parent)


def stale_pidfile(database: EmbeddedPostgres, pid: int) -> None:
    data = database.storage / "pgdata"
    lines = [pid, data, 1700000000, 5432, database.storage / "run", "", "  5432001     65536", "ready   "]
    (data / "postmaster.pid").write_text("".join(f"{line}\n" for line in lines))


def test_reused_pid(stopped: EmbeddedPostgres) -> None:
    """A pidfile that names an unrelated process of the same account does not stop a start."""
    stranger = subprocess.Popen(["sleep", "60"], user=owner(stopped.storage) if IS_ROOT else None)
    try:
        stale_pidfile(stopped, stranger.pid)
        assert stopped.pid is None
        with stopped:
            assert stopped.pid not in {stranger.pid, None}
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_zombie_pid(stopped: EmbeddedPostgres) -> None:
    """A pidfile that names a zombie does not stop a start."""
    zombie = subprocess.Popen(["true"])
    try:
        until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_ZOMBIE)
        stale_pidfile(stopped, zombie.pid)
        with stopped:
            assert stopped.pid not in {zombie.pid, None}
    finally:
        zombie.wait()


def test_a_server_out_of_sight_is_not_doubled(stopped: EmbeddedPostgres) -> None:
    """A socket that answers while its pid is unknown here (another container) forbids a second server."""
    path = stopped.storage / "run" / ".s.PGSQL.5432"
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)
        listener.bind(path.name)
        os.chdir("/")
        listener.listen()
        stale_pidfile(stopped, 2**22 - 1)
        with pytest.raises(ConfigurationError, match="another container"):
            stopped.start()


@needs_root
def test_root_keeps_the_cluster_elsewhere(tmp_path: Path, home: Path) -> None:
    """Under a folder that only root can enter, the cluster lies and runs as another account; no mode changes."""
    tmp_path.chmod(0o700)
    before = [mode(folder) for folder in tmp_path.parents]
    with EmbeddedPostgres(home, settings=FAST) as database:
        account = owner(database.storage)
        assert database.storage.parent == _places.SERVICE_ROOT
        assert mode(database.storage) == 0o700
        assert account == psutil.Process(database.pid).uids().effective != 0
        assert {"secret", "locks"} == {path.name for path in home.iterdir()}
    assert mode(tmp_path) == 0o700
    assert before == [mode(folder) for folder in tmp_path.parents]


@needs_root
def test_root_leaves_an_ordinary_cluster_alone(home: Path) -> None:
    """Root does not open an empty library beside the one of the folder's owner."""
    (home / "pgdata").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="not as root"):
        EmbeddedPostgres(home)


@needs_root
async def test_programs_are_copied_once(tmp_path: Path, home: Path, service_root: Path, hidden_programs: Path) -> None:
    """Programs that the server's account can't execute are copied, once for two processes that race."""
    options = {"service_root": str(service_root), "bin_dir": str(hidden_programs)}
    with members(home, tmp_path / "other", **options) as (first, second):
        assert first.bin_dir == second.bin_dir
        assert service_root in first.bin_dir.parents
        assert first.pid != second.pid
        assert await ask(first.parameters, "SELECT 1") == [1]
    assert len(names(service_root, "programs-*/")) == 1
    assert names(service_root, "copying-*") == []


@needs_root
def test_a_shared_service_root_is_refused(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root does not put a cluster into a folder that others can write to."""
    tmp_path.chmod(0o777)
    monkeypatch.setattr(_places, "SERVICE_ROOT", tmp_path)
    with pytest.raises(ConfigurationError, match="0711"):
        EmbeddedPostgres(home).start()


def test_foreign_version_is_refused(stopped: EmbeddedPostgres) -> None:
    """A cluster of another major version is left alone, and the message names dump and restore."""
    (stopped.storage / "pgdata" / "PG_VERSION").write_text("17\n")
    with pytest.raises(ConfigurationError, match=r"PostgreSQL 17.*pg_dump.*pg_restore"):
        stopped.start()
    assert stopped.pid is None


def test_interrupted_initialisation_leaves_nothing(home: Path) -> None:
    """A process killed while it makes the cluster leaves none, and the next start makes it."""
    database = EmbeddedPostgres(home, settings=FAST)
    process = launch(home)
    until(lambda: list(database.storage.glob("init-*/pgdata/PG_VERSION")))
    process.kill()
    process.communicate(timeout=10)
    assert not (database.storage / "pgdata").exists()
    end_server(database.storage)
    with database:
        assert database.pid is not None
        assert list(database.storage.glob("init-*")) == []


def test_a_start_that_fails_late_leaves_no_server(stopped: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was started for a caller who gets an error is stopped again."""

    def unreadable(_: EmbeddedPostgres) -> str:
        raise ConfigurationError("The secret can't be read.")

    monkeypatch.setattr(EmbeddedPostgres, "_password", unreadable)
    with pytest.raises(ConfigurationError):
        stopped.start()
    assert stopped.pid is None


async def test_lost_secret_is_renewed(stopped: EmbeddedPostgres, home: Path) -> None:
    """Whoever owns the files gets a new password for a cluster whose secret is lost."""
    before = (home / "secret").read_text()
    (home / "secret").unlink()
    with stopped as database:
        after = database.start()
        assert after.password != before
        assert await ask(after, "SELECT 1") == [1]


def test_lost_cluster_is_not_replaced_by_an_empty_one(stopped: EmbeddedPostgres) -> None:
    """A data folder whose cluster has vanished is an error, not an empty library."""
    shutil.rmtree(stopped.storage / "pgdata")
    with pytest.raises(ConfigurationError, match="no longer in"):
        stopped.start()


def test_failed_start_says_why(stopped: EmbeddedPostgres, home: Path) -> None:
    """The message carries the log's words without the server's paths, and a better start succeeds."""
    database = EmbeddedPostgres(home, settings={**FAST, "shared_buffers": "plenty"})
    with pytest.raises(DatabaseUnavailable, match="shared_buffers") as caught:
        database.start()
    assert caught.value.reason == "unreachable"
    assert str(database.storage) not in caught.value.message
    assert list((home / "locks").glob("*.client")) == []
    with stopped as better:
        assert better.pid is not None


@pytest.mark.parametrize("settings", [{"port": "1"}, {"a b": "1"}, {"work_mem": "1MB\nport = 1"}])
def test_settings_that_are_refused(home: Path, settings: dict[str, str]) -> None:
    """Settings that philorag owns, or that would smuggle in another line, are refused."""
    with pytest.raises(ConfigurationError):
        EmbeddedPostgres(home, settings=settings)


async def test_settings_are_quoted(stopped: EmbeddedPostgres, home: Path) -> None:
    """A value with quotes and backslashes arrives as it was given."""
    with EmbeddedPostgres(home, settings={**FAST, "philorag.note": r"it's \n"}) as database:
        assert await ask(database.start(), "SHOW philorag.note") == [r"it's \n"]


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/shm is Linux's")
async def test_small_shared_memory(stopped: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /dev/shm is smaller than maintenance_work_mem, parallel work uses files instead."""
    monkeypatch.setattr(_cluster, "_shared_memory", lambda: 64 * 2**20)
    with stopped as database:
        assert await ask(database.start(), "SHOW dynamic_shared_memory_type") == ["mmap"]


def test_unusable_home(tmp_path: Path) -> None:
    """A file where the folder should be stops the start with a clear error."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="data folder"):
        EmbeddedPostgres(tmp_path / "file").start()


def test_missing_programs(home: Path, tmp_path: Path) -> None:
    """A folder without PostgreSQL's programs is named in the error."""
    with pytest.raises(ConfigurationError, match="bin_dir"):
        EmbeddedPostgres(home, bin_dir=tmp_path / "nothing" / "pginstall" / "bin").start()
