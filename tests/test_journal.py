"""A journal holds what was appended, whole, in order, whoever looks and whatever was killed."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest
from hard_disks import no_room, not_allowed

from umpteen.errors import JournalDamaged, LabelMismatch, NotWritten
from umpteen.journal import Journal


def open_journal(path, **options):
    return Journal(path, kind="things", belongs_to="f" * 32, **options)


def write(path, *values):
    journal = open_journal(path)
    for value in values:
        with journal.changing():
            journal.append({"value": value})
    return journal


def values(tail):
    return [record["value"] for record in tail.records]


def read(path, **options):
    return values(open_journal(path, **options).follow())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "things.journal"


def test_what_was_appended_is_read_in_order(path):
    texts = ["a", "zwei\nZeilen", "三\u2028", "", "\ud800", {"deep": [1, None]}]
    journal = write(path, *texts)
    assert read(path) == texts
    assert journal.revision == journal.n_records == len(texts)


def test_what_was_appended_is_on_the_disk(path, synced):
    journal = write(path, 0)
    for value in (1, 2):
        synced.clear()
        with journal.changing():
            journal.append({"value": value})
            assert synced == [path.stat().st_ino]


def test_nothing_is_there_before_the_first_record(path):
    journal = open_journal(path)
    assert journal.follow().records == []
    assert journal.revision == 0
    assert not path.exists()


def test_a_follower_sees_each_record_once(path):
    follower = open_journal(path)
    writer = open_journal(path)
    for n in range(5):
        with writer.changing():
            writer.append({"value": n})
        assert values(follower.follow()) == [n]
        assert follower.follow().records == []
        assert writer.follow().records == []  # its own are not news
    assert follower.revision == writer.revision == 5


def test_two_writers_see_each_others_records_before_they_add(path):
    one, two = open_journal(path), open_journal(path)
    seen = []
    for n, writer in enumerate([one, two, two, one, two]):
        with writer.changing() as tail:
            seen.append(values(tail))
            writer.append({"value": n})
    assert seen == [[], [0], [], [1, 2], [3]]
    assert read(path) == [0, 1, 2, 3, 4]


def test_written_anew_it_holds_the_new_records_and_followers_are_told(path):
    follower = open_journal(path)
    writer = write(path, 0, 1, 2, 3)
    follower.follow()
    with writer.changing():
        writer.replace([{"value": "all"}])
        writer.append({"value": 4})
    tail = follower.follow()
    assert tail.anew
    assert values(tail) == ["all", 4]
    assert follower.revision == writer.revision == 5
    assert writer.n_records == 2


def test_a_file_number_that_comes_again_is_not_taken_for_the_same_file(path, tmp_path):
    """Written in place, with the same inode and a longer file: only the token tells."""
    follower = open_journal(path)
    write(path, "old")
    follower.follow()
    other = tmp_path / "other.journal"
    write(other, "new", "newer", "newest")
    with path.open("r+b") as handle:
        handle.write(other.read_bytes())
    tail = follower.follow()
    assert tail.anew
    assert values(tail) == ["new", "newer", "newest"]


def test_cut_anywhere_it_holds_the_whole_records_before_the_cut(path):
    write(path, *range(4))
    content = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        whole = max(0, sum(end <= cut for end in ends) - 1)
        assert read(path) == list(range(whole)), cut
        write(path, "next")
        assert read(path) == [*range(whole), "next"], cut


def test_any_changed_byte_is_noticed(path):
    write(path, *range(4))
    content = path.read_bytes()
    starts = [0, *(place + 1 for place, byte in enumerate(content) if byte == ord("\n"))]
    for place in range(len(content) - 1):
        line = sum(start <= place for start in starts)
        damaged = bytearray(content)
        damaged[place] ^= 0x04
        path.write_bytes(bytes(damaged))
        journal = open_journal(path)
        for _ in range(2):  # told once, told again
            with pytest.raises(JournalDamaged, match=rf"line {line}: the record is damaged"):
                journal.follow()
        patient = open_journal(path, tolerant=True)
        lost = {line - 2} if content[place] != ord("\n") else {line - 2, line - 1}
        assert set(values(patient.follow())) == set(range(4)) - lost
        assert f"line {line}" in patient.damage
        with pytest.raises(JournalDamaged), patient.changing():
            pass
    path.write_bytes(content)
    assert read(path) == [0, 1, 2, 3]


def test_a_missing_line_is_damage(path):
    write(path, *range(4))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(JournalDamaged, match="line 3"):
        read(path)


def test_a_tolerant_follower_recovers_when_the_file_is_mended(path):
    write(path, 0, 1)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"value":0', b'"value":7'))
    journal = open_journal(path, tolerant=True)
    assert values(journal.follow()) == [1]
    path.unlink()
    write(path, "a", "b", "c")
    assert journal.follow().anew
    assert not journal.damage


@pytest.mark.parametrize("content", [b"hello\n", b"00000000 \n", b"\n", b"\x00" * 40 + b"\n"])
def test_another_file_is_damage_and_not_a_crash(path, content):
    path.write_bytes(content)
    with pytest.raises(JournalDamaged):
        read(path)


def test_a_journal_of_something_else_is_refused(path):
    write(path, 1)
    with pytest.raises(LabelMismatch, match="was written for ffffffffffff, this is 000000000000"):
        Journal(path, kind="things", belongs_to="0" * 32).follow()
    with pytest.raises(JournalDamaged, match="not a journal of labels"):
        Journal(path, kind="labels", belongs_to="f" * 32).follow()


def test_a_full_disk_is_a_sentence_and_changes_nothing(path):
    journal = write(path, 0)
    with no_room(path.stat().st_size + 20), journal.changing():
        with pytest.raises(NotWritten, match="could not be written .*nothing was changed"):
            journal.append({"value": "x" * 100})
        with pytest.raises(NotWritten):
            journal.replace([{"value": "x" * 1000}])
    assert read(path) == [0]
    with journal.changing():
        journal.append({"value": 1})
    assert read(path) == [0, 1]
    assert [p.name for p in path.parent.iterdir() if p.name.endswith(".tmp")] == []


def test_a_read_only_folder_can_be_read_and_not_changed(path):
    journal = write(path, 0)
    with not_allowed(path.parent):
        assert read(path) == [0]
        with pytest.raises(NotWritten, match="Permission denied"), journal.changing():
            pass
    fresh = path.with_name("fresh.journal")
    with not_allowed(path.parent):
        assert read(fresh) == []
        with pytest.raises(NotWritten), open_journal(fresh).changing():
            pass


def test_many_threads_lose_nothing(path):
    def add(name):
        journal = open_journal(path)
        for n in range(10):
            with journal.changing():
                journal.append({"value": f"{name}-{n}"})

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read(path)
    assert sorted(found) == sorted(f"{name}-{n}" for name in "abcd" for n in range(10))
    assert [v for v in found if v.startswith("a")] == [f"a-{n}" for n in range(10)]


CHILD = """
import sys
from umpteen.journal import Journal
journal = Journal(sys.argv[1], kind="things", belongs_to="f" * 32)
journal.follow()
for n in range(journal.revision, 10**9):
    with journal.changing():
        if n % 7 == 6:
            journal.replace([{"value": v} for v in range(n)])
        journal.append({"value": n})
    print(n, flush=True)
"""


def test_killed_at_any_moment_no_acknowledged_record_is_lost(path):
    acknowledged = -1
    for round_ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(round_ + 1):
            acknowledged = int(child.stdout.readline())
        child.kill()
        rest = child.stdout.read().split("\n")[:-1]  # whole lines it still said
        child.wait()
        acknowledged = int(rest[-1]) if rest else acknowledged
        found = read(path)
        assert found == list(range(len(found)))
        assert acknowledged < len(found) <= acknowledged + 2
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
