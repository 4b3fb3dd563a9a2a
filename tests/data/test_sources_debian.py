"""Debian packages from tiny lists in apt's format, written here."""

import bz2
import gzip
import lzma

import pytest

from umpteen.data.sources import apt_packages, debian
from umpteen.errors import ConfigError, DataError

PACKAGES = """\
Package: editor
Version: 1.0
Depends: libc (>= 2.3), libtext:any | libtext-old [amd64], editor
Recommends: spell,
 fonts
Suggests: mail-agent, manual
Description: edits text
Description-md5: 111

Package: libtext
Pre-Depends: libc
Description: text library
 A library with a long description.
 .
  And a second paragraph.

Package: libtext-old
Depends: libc
Description: old text library

Package: libc
Description: C library

Package: spell
Depends: libc, libtext
Description: checks spelling

Package: fonts
Description: letters

Package: manual
Suggests: editor
Description: how to
"""
SECURITY = """\
Package: spell
Depends: libc, libtext-old
Description: checks spelling safely
"""
TRANSLATION = """\
Package: editor
Description-md5: 111
Description-en: edits text
 Edits text of any kind.
"""

RELATED = {
    "editor": {"libc", "libtext", "libtext-old", "spell", "fonts", "manual"},
    "libtext": {"libc"},
    "libtext-old": {"libc"},
    "libc": set(),
    "spell": {"libc", "libtext-old"},  # from the security list, which sorts first
    "fonts": set(),
    "manual": {"editor"},
}


@pytest.fixture
def lists(tmp_path):
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "host_dists_stable_main_binary-amd64_Packages").write_text(PACKAGES)
    (folder / "host_dists_stable-security_main_binary-amd64_Packages").write_text(SECURITY)
    (folder / "host_dists_stable_main_i18n_Translation-en").write_text(TRANSLATION)
    (folder / "host_dists_stable_InRelease").write_text("not a list")
    return folder


@pytest.mark.parametrize("seed", range(6))
def test_labels_are_what_a_package_asks_for(lists, seed):
    data = debian.build(lists=lists, max_share=1.0, test_share=0.4, seed=seed)
    train = data["train"]
    known = {label for query in train.ids for label in RELATED[query]}
    assert set(data.labels.ids) == known
    for split in (train, data["test"]):
        for row, query in enumerate(split.ids):
            labels = {data.labels.ids[column] for column in split.targets[row].indices}
            assert labels == RELATED[query] & known
            assert labels
        pairs = {(split.ids[row], data.labels.ids[label]) for row, label in split.filters.tolist()}
        assert pairs == {(query, query) for query in split.ids if query in known}
    assert data.label_counts.min() >= 1


def texts_of(data, query):
    for split in (data["train"], data["test"]):
        if query in split.ids:
            row = list(split.ids).index(query)
            return split.titles[row], split.contents[row]
    raise AssertionError(query)


def test_texts_come_from_the_list_or_its_translation(lists):
    data = debian.build(lists=lists, max_share=1.0)
    assert texts_of(data, "editor") == ("editor: edits text", "Edits text of any kind.")
    assert texts_of(data, "spell") == ("spell: checks spelling safely", "")
    title, content = texts_of(data, "libtext")
    assert content == "A library with a long description. And a second paragraph."
    assert data.labels.titles[data.labels.row("libc")] == "libc: C library"


def test_too_frequent_labels_are_left_out(lists):
    lines = []
    # 5 packages ask for something; libc serves 4 of them, libtext-old 2
    data = debian.build(lists=lists, max_share=0.6, seed=1, log=lines.append)
    assert "libc" not in data.labels.rows
    assert any("1 labels left out" in line for line in lines)
    kept = debian.build(lists=lists, max_share=0.8, seed=1)
    assert "libc" in kept.labels.rows
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        debian.build(lists=lists, max_share=0)


@pytest.mark.parametrize(
    ("suffix", "opener"),
    [(".gz", gzip.open), (".xz", lzma.open), (".bz2", bz2.open), (".lzma", lzma.open)],
)
def test_compressed_lists_are_read(lists, tmp_path, suffix, opener):
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in lists.iterdir():
        with opener(packed / (path.name + suffix), "wb") as handle:
            handle.write(path.read_bytes())
    plain = debian.build(lists=lists, max_share=1.0)
    again = debian.build(lists=packed, max_share=1.0)
    assert again.labels.fingerprint == plain.labels.fingerprint
    assert again["train"].titles == plain["train"].titles
    assert (again["train"].targets != plain["train"].targets).nnz == 0


def test_the_plain_list_wins_over_its_compressed_copy(tmp_path):
    (tmp_path / "a_Packages").write_text("Package: x\n")
    (tmp_path / "a_Packages.gz").write_bytes(b"broken")
    assert [path.name for path in apt_packages.find_lists(tmp_path, "Packages")] == ["a_Packages"]


def test_lists_that_only_apt_reads_go_through_its_helper(tmp_path, monkeypatch):
    path = tmp_path / "a_Packages.lz4"
    path.write_text("Package: x\n\nPackage: y\n")
    helper = tmp_path / "helper"
    helper.write_text('#!/bin/sh\n[ "$1" = cat-file ] && cat "$2"\n')
    helper.chmod(0o755)
    monkeypatch.setattr(apt_packages, "APT_HELPER", str(helper))
    read = list(apt_packages.read_stanzas(path, frozenset({"Package"})))
    assert read == [{"Package": "x"}, {"Package": "y"}]
    helper.write_text("#!/bin/sh\necho no such magic >&2\nexit 3\n")
    with pytest.raises(DataError, match="no such magic"):
        list(apt_packages.read_stanzas(path, frozenset({"Package"})))
    monkeypatch.setattr(apt_packages, "APT_HELPER", str(tmp_path / "absent"))
    with pytest.raises(DataError, match="GzipIndexes=false"):
        list(apt_packages.read_stanzas(path, frozenset({"Package"})))


def test_no_lists_says_how_to_get_them(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match=r"apt-get update.*--lists"):
            debian.build(lists=folder)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"Package: a\nno field here\n", "line 2: 'no field here' is not a line"),
        (b"Version: 1\nDescription: a package without a name\n", "no Package field"),
        (b"Package: \xff\n", "not UTF-8"),
    ],
)
def test_a_damaged_list_is_named(tmp_path, content, sentence):
    (tmp_path / "x_Packages").write_bytes(content)
    with pytest.raises(DataError, match=sentence) as caught:
        debian.build(lists=tmp_path)
    assert "x_Packages" in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_a_broken_archive_is_named(tmp_path, suffix):
    (tmp_path / f"x_Packages{suffix}").write_bytes(b"this is not compressed at all")
    with pytest.raises(DataError, match="cannot be unpacked"):
        debian.build(lists=tmp_path)
    whole = gzip.compress(PACKAGES.encode())
    (tmp_path / f"x_Packages{suffix}").unlink()
    (tmp_path / "x_Packages.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be unpacked"):
        debian.build(lists=tmp_path)
