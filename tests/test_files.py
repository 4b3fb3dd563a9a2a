"""Writing whole or not at all, and clearing up after a kill."""

import json
import os

import pytest

from umpteen.errors import RunError, UmpteenError
from umpteen.files import (
    atomic_file,
    atomic_folder,
    clear_leftovers,
    digest,
    leftovers,
    read_json,
    write_json,
)

pytestmark = pytest.mark.usefixtures("synced")


def names(folder) -> list[str]:
    return sorted(place.name for place in folder.iterdir())


def write_half(file) -> None:
    file.write_text("half")
    raise ZeroDivisionError


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_what_gets_its_name_is_on_the_disk_and_so_is_the_name(tmp_path, synced, monkeypatch):
    on_disk = []  # what was synced before each renaming
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda *a: (on_disk.append(list(synced)), rename(*a)))
    folder = tmp_path.stat().st_ino
    with atomic_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
        file = temporary.stat().st_ino
    assert (on_disk, synced) == ([[file]], [file, folder])
    with atomic_folder(tmp_path / "b") as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "c.txt").write_text("new")
        inner = (temporary / "inner" / "c.txt").stat().st_ino
    assert (on_disk[1:], synced[2:]) == ([[file, folder, inner]], [inner, folder])


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as temporary:
        write_half(temporary)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_appears_whole_with_its_parents(tmp_path):
    path = tmp_path / "deep" / "folder"
    with atomic_folder(path) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "a.txt").write_text("new")
        assert not path.exists()
    assert (path / "inner" / "a.txt").read_text() == "new"
    assert names(path.parent) == ["folder"]


def test_a_folder_with_something_in_it_is_not_replaced_unasked(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "a.txt").write_text("old")
    with pytest.raises(UmpteenError, match="exists already"), atomic_folder(path):
        pass
    assert names(path) == ["a.txt"]


def test_an_error_while_replacing_leaves_the_old_folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "a.txt").write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_folder(path, replace=True) as temporary:
        write_half(temporary / "b.txt")
    assert names(path) == ["a.txt"]
    assert names(tmp_path) == ["folder"]


def test_an_interrupt_between_the_two_renames_puts_the_old_folder_back(tmp_path, monkeypatch):
    import os

    path = tmp_path / "folder"
    path.mkdir()
    (path / "a.txt").write_text("old")
    rename, calls = os.replace, []

    def second_fails(old, new):
        calls.append(new)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(old, new)

    monkeypatch.setattr("os.replace", second_fails)
    with pytest.raises(KeyboardInterrupt), atomic_folder(path, replace=True) as temporary:
        (temporary / "b.txt").write_text("new")
    assert names(path) == ["a.txt"]
    assert names(tmp_path) == ["folder"]


def test_replacing_leaves_the_new_folder_alone(tmp_path):
    path = tmp_path / "folder"
    for name in ("a.txt", "b.txt"):
        with atomic_folder(path, replace=True) as temporary:
            (temporary / name).write_text("x")
    assert names(path) == ["b.txt"]
    assert names(tmp_path) == ["folder"]


def test_leftovers_are_known_by_their_names(tmp_path):
    (tmp_path / ".a.json.0123abcd.tmp").write_text("half")
    (tmp_path / ".step-1.0123abcd.old.tmp").mkdir()
    for name in ("a.tmp", ".mine.tmp", ".notes", ".a.json.0123abcd.tmp.txt", "b.0123abcd.tmp"):
        (tmp_path / name).write_text("not ours")
    found = [place.name for place in leftovers(tmp_path)]
    assert found == [".a.json.0123abcd.tmp", ".step-1.0123abcd.old.tmp"]
    assert leftovers(tmp_path / "nowhere") == []


def test_clearing_removes_halves_and_gives_a_folder_its_name_back(tmp_path):
    for name in (".new.0123abcd.tmp", ".lost.0123abcd.old.tmp", ".kept.0123abcd.old.tmp", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    (tmp_path / ".b.json.0123abcd.tmp").write_text("half")
    (tmp_path / "b.json").write_text("whole")
    clear_leftovers(tmp_path)
    assert names(tmp_path) == ["b.json", "kept", "lost"]
    assert (tmp_path / "lost" / "a.txt").read_text() == ".lost.0123abcd.old.tmp"
    assert (tmp_path / "kept" / "a.txt").read_text() == "kept"
    clear_leftovers(tmp_path / "nowhere")


def test_json_goes_there_and_back(tmp_path):
    value = {"text": "naïve 日本", "numbers": [1, 2.5, None]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_what_is_no_json_is_a_sentence_of_the_asked_kind(raw, tmp_path):
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(RunError, match="a.json cannot be read as JSON"):
        read_json(tmp_path / "a.json", error=RunError)


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(RunError, match="a.json is missing"):
        read_json(tmp_path / "a.json", error=RunError)


def test_a_digest_changes_with_one_bit(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(1000))
    before = digest(path)
    assert digest(path) == before
    path.write_bytes(bytes(999) + b"\x01")
    assert digest(path) != before
    assert len(json.dumps(before)) == 66
