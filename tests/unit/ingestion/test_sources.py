from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from philorag.errors import InvalidInput, PermissionDenied, ProcessingError
from philorag.ingestion.sources import SourceFile, SourceFolder, Walk, hash_unchanged
from philorag.model import SourceState

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files and links")
DECOMPOSED = unicodedata.normalize("NFD", "Phèdre.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "books").mkdir()
    (tmp_path / "secret.md").write_text("secret")
    return tmp_path / "books"


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def walk(folder: Path, *, recursive: bool = True) -> Walk:
    return SourceFolder(folder).walk(folder, recursive=recursive)


def found(folder: Path) -> list[str]:
    return [file.logical for file in walk(folder).files]


def failures(folder: Path) -> list[tuple[str, str]]:
    return [(failure.path, failure.reason) for failure in walk(folder).failed]


def resolved(folder: Path, path: str) -> SourceFile:
    sources = SourceFolder(folder)
    return sources.file(sources.resolve(path))


def state(file: SourceFile) -> SourceState:
    return SourceState(sha256=hashlib.sha256(file.path.read_bytes()).hexdigest(), size=file.size, mtime_ns=0)


@pytest.mark.parametrize(
    "path", ["..", "../secret.md", "a/../../secret.md", "a/..", "/etc/passwd", "/", "./../books/../secret.md", "/."]
)
def test_a_path_that_leaves_is_refused(folder: Path, path: str):
    """Nothing outside the source folder can be named, and the refusal doesn't say whether it exists."""
    write(folder, "a/x.md")
    with pytest.raises(PermissionDenied) as caught:
        SourceFolder(folder).resolve(path)
    assert str(folder) not in str(caught.value.details | {"message": caught.value.message})


def test_a_neighbour_with_the_same_beginning_is_outside(folder: Path):
    """A folder whose name merely begins like the source folder's is not in it."""
    write(folder.parent, "books-2/x.md")
    with pytest.raises(PermissionDenied):
        SourceFolder(folder).resolve(str(folder.parent / "books-2" / "x.md"))


@given(
    st.lists(st.sampled_from(["..", ".", "a", "/", "~", "...", "a/..", "secret.md", "//etc"]), max_size=6).map("/".join)
)
def test_no_spelling_leads_outside(tmp_path_factory: pytest.TempPathFactory, path: str):
    """Whatever is asked for, the answer lies in the folder or is a refusal."""
    folder = tmp_path_factory.getbasetemp() / "spelled" / "books"
    (folder / "a").mkdir(parents=True, exist_ok=True)
    try:
        answer = SourceFolder(folder).resolve(path)
    except (PermissionDenied, InvalidInput):
        return
    assert answer.resolve().is_relative_to(folder.resolve())


def test_an_absolute_path_inside_is_taken(folder: Path):
    """A path may be given in full."""
    write(folder, "a/x.md")
    assert resolved(folder, str(folder / "a" / "x.md")).logical == "documents/a/x.md"


@pytest.mark.parametrize("path", ["nowhere.md", "x.md/y", "a\0b", "\udcff.md", "\ud800", "n" * 300, "d/" * 3000])
def test_a_path_that_names_nothing_is_invalid_input(folder: Path, path: str):
    """What isn't there, or can't be, is a matter of the argument."""
    write(folder, "x.md")
    with pytest.raises(InvalidInput) as caught:
        SourceFolder(folder).resolve(path, "file_path")
    assert caught.value.details["argument"] == "file_path"


@POSIX
def test_case_is_the_file_systems(folder: Path):
    """Two files whose names differ in case are two documents."""
    write(folder, "Meno.md", "meno.md")
    assert {f"documents/{path.name}" for path in folder.iterdir()} == set(found(folder))


def test_the_walk_is_sorted_and_complete(folder: Path):
    """Files come in order of name, each folder's where the folder's name stands."""
    write(folder, "b.md", "a/z.md", "a/b/c.md", "c.txt", "B.md")
    names = ["B.md", "a/b/c.md", "a/z.md", "b.md", "c.txt"]
    assert [f"documents/{name}" for name in names] == found(folder)


def test_a_flat_walk_stays_in_its_folder(folder: Path):
    """Without recursion only the folder's own files are found."""
    write(folder, "a/z.md", "b.md")
    assert [file.logical for file in walk(folder, recursive=False).files] == ["documents/b.md"]


def test_a_subfolder_keeps_its_names(folder: Path):
    """A walk of a subfolder gives the same names as a walk of the whole."""
    write(folder, "a/z.md", "b.md")
    sources = SourceFolder(folder)
    (file,) = sources.walk(sources.resolve("a"), recursive=True).files
    assert file.logical == "documents/a/z.md"


def test_hidden_names_are_passed_over(folder: Path):
    """Version control, editors' files and a desktop's litter are no documents."""
    write(folder, ".git/config", ".hidden.md", "a/.x.md", "a/y.md")
    assert found(folder) == ["documents/a/y.md"]


@POSIX
def test_a_deep_folder_is_walked(folder: Path):
    """A folder may be nested deeper than Python calls."""
    folders = [folder.joinpath(*["d"] * depth) for depth in range(1, 1_200)]
    for path in folders:
        path.mkdir()
    (folders[-1] / "x.md").write_text("x")
    try:
        assert len(found(folder)) == 1
    finally:
        (folders[-1] / "x.md").unlink()
        for path in reversed(folders):
            path.rmdir()


def test_names_are_composed(folder: Path):
    """A decomposed name, as macOS writes them, is stored in its composed form."""
    write(folder, DECOMPOSED)
    assert found(folder) == ["documents/Phèdre.md"]


@POSIX
def test_two_forms_of_one_name_clash(folder: Path):
    """Of two files whose names differ only in their Unicode form, the second is a failure and not an overwriting."""
    write(folder, DECOMPOSED, "Phèdre.md")
    seen = walk(folder)
    assert len(seen.files) == len(seen.failed) == 1
    assert "Unicode" not in seen.failed[0].path
    assert seen.failed[0].reason == "unreadable"


@POSIX
def test_a_name_that_is_no_text_is_a_failure(folder: Path):
    """A name in another encoding fails by itself, printably."""
    write(folder, "ok.md")
    try:
        Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.md")).write_text("x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert found(folder) == ["documents/ok.md"]
    assert failures(folder) == [("documents/caf\\udce9.md", "unreadable")]


@POSIX
@pytest.mark.parametrize("target", ["../secret.md", "..", "/etc/passwd", "/"])
def test_a_link_that_leaves_is_not_followed(folder: Path, target: str):
    """A link to a file or folder outside is refused by name and a failure in a walk."""
    (folder / "link").symlink_to(target)
    with pytest.raises(PermissionDenied):
        SourceFolder(folder).resolve("link")
    assert failures(folder) == [("documents/link", "This link leaves the source folder.")]


@POSIX
def test_a_path_through_a_link_that_leaves_is_refused(folder: Path):
    """A link in the middle of a path is looked through as well."""
    (folder / "out").symlink_to(folder.parent)
    with pytest.raises(PermissionDenied):
        SourceFolder(folder).resolve("out/secret.md")


@POSIX
def test_a_link_inside_is_another_name_of_its_file(folder: Path):
    """A link to a file or folder in here makes no second document, in whatever order they are seen."""
    write(folder, "m/book.md")
    for name, target in (("a.md", "m/book.md"), ("z.md", "m/book.md"), ("d", "m"), ("self", ".")):
        (folder / name).symlink_to(target)
    assert found(folder) == ["documents/m/book.md"]
    assert resolved(folder, "a.md").logical == resolved(folder, "d/book.md").logical == "documents/m/book.md"
    assert not failures(folder)


@POSIX
def test_a_link_to_a_hidden_file_keeps_its_own_name(folder: Path):
    """Where contents are kept out of sight, as git-annex does, the link is the document's name."""
    write(folder, ".annex/objects/8f3.md")
    (folder / "book.md").symlink_to(".annex/objects/8f3.md")
    (file,) = walk(folder).files
    assert (file.logical, file.path.name, file.path.is_symlink()) == ("documents/book.md", "8f3.md", False)


@POSIX
def test_link_loops_end(folder: Path):
    """Links that lead to each other are failures, not an endless walk."""
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "gone.md").symlink_to("nowhere.md")
    write(folder, "ok.md")
    assert found(folder) == ["documents/ok.md"]
    assert [path for path, _ in failures(folder)] == ["documents/a", "documents/b", "documents/gone.md"]


@POSIX
def test_the_source_folder_itself_may_be_a_link(folder: Path):
    """An operator may keep the books elsewhere."""
    write(folder, "x.md")
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert found(link) == ["documents/x.md"]
    assert resolved(link, "x.md").path == folder.resolve() / "x.md"


@POSIX
def test_a_pipe_is_no_file(folder: Path):
    """A pipe would keep its reader waiting: it is refused without being opened."""
    os.mkfifo(folder / "pipe.md")
    assert failures(folder) == [("documents/pipe.md", "not_a_file")]
    with pytest.raises(ProcessingError) as caught:
        resolved(folder, "pipe.md")
    assert caught.value.reason == "not_a_file"


def test_a_folder_is_no_file(folder: Path):
    """Where one file is asked for, a folder is `not_a_file`."""
    with pytest.raises(ProcessingError) as caught:
        resolved(folder, ".")
    assert caught.value.reason == "not_a_file"


def test_a_vanished_file_is_named_so(folder: Path):
    """A file that goes between naming and looking is `vanished`."""
    with pytest.raises(ProcessingError) as caught:
        SourceFolder(folder).file(folder / "gone.md")
    assert caught.value.reason == "vanished"


@POSIX
def test_a_link_that_came_later_is_not_followed(folder: Path):
    """A file that was replaced by a link outside after it was named is refused."""
    write(folder, "x.md")
    sources = SourceFolder(folder)
    path = sources.resolve("x.md")
    path.unlink()
    path.symlink_to(folder.parent / "secret.md")
    with pytest.raises(PermissionDenied):
        sources.file(path)


FORBIDDEN_WALK = """
import os, sys
from pathlib import Path
from philorag.errors import ProcessingError
from philorag.ingestion.sources import SourceFolder
os.setuid(65534) if os.getuid() == 0 else None
folder = Path(sys.argv[1])
try:
    SourceFolder(folder).resolve("shut/x.md")
except ProcessingError as error:
    print(error.reason)
seen = SourceFolder(folder).walk(folder, recursive=True)
print([file.logical for file in seen.files], [(failure.path, failure.reason) for failure in seen.failed])
"""


@POSIX
def test_a_forbidden_folder_is_a_failure(folder: Path):
    """A folder that may not be opened, or not be entered, fails by itself, and so does a file named in it."""
    write(folder, "ok.md", "shut/x.md", "listed/y.md")
    (folder / "link").symlink_to("shut/x.md")
    for parent in [folder, *folder.parents[:-1]]:
        parent.chmod(parent.stat().st_mode | 0o055) if parent.stat().st_uid == os.getuid() else None
    (folder / "shut").chmod(0o000)
    (folder / "listed").chmod(0o444)
    try:
        command = [sys.executable, "-c", FORBIDDEN_WALK, str(folder)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    finally:
        (folder / "shut").chmod(0o755)
        (folder / "listed").chmod(0o755)
    assert answer.startswith("unreadable\n['documents/ok.md']")
    for name in ("link", "listed/y.md", "shut"):
        assert f"('documents/{name}', 'unreadable')" in answer


@pytest.mark.parametrize(
    ("before", "now", "same"), [("text", "text", True), ("text", "TEXT", False), ("text", "longer", False)]
)
def test_contents_decide_whether_a_file_changed(folder: Path, before: str, now: str, same: bool):
    """A file with new times is unchanged when its bytes are."""
    path = folder / "x.md"
    path.write_text(before)
    known = state(resolved(folder, "x.md"))
    path.write_text(now)
    assert hash_unchanged(resolved(folder, "x.md"), known) is same


@POSIX
@pytest.mark.parametrize("swap", ["link", "pipe", "nothing"])
def test_what_is_no_longer_the_file_has_changed(folder: Path, swap: str):
    """A file that became a link or a pipe since it was listed is neither followed nor waited for."""
    write(folder, "x.md", "y.md")
    (folder / "y.md").write_text("x.md")
    file = resolved(folder, "x.md")
    known = state(file)
    file.path.unlink()
    if swap == "link":
        file.path.symlink_to("y.md")
    elif swap == "pipe":
        os.mkfifo(file.path)
    assert not hash_unchanged(file, known)
