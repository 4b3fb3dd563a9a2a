"""Results of studies in few files: written one by one, and unpacked again."""

import json
import zipfile

import numpy as np
import pytest
from bench.training.collection import ARCHIVES, RESULTS, Collection, unpack


@pytest.fixture
def results(tmp_path):
    """Return seven runs of two studies: (study, run, result, file of values)."""
    rng, found = np.random.default_rng(3), []
    for number in range(7):
        file = tmp_path / "work" / f"s{number % 2}" / "per_query" / f"run{number}.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, values=rng.random(300))
        found.append((f"s{number % 2}", f"run{number}", {"key": f"{number}"}, file))
    return found


def test_unpacked_results_and_values_are_those_that_were_added(results, tmp_path):
    size = results[0][3].stat().st_size
    collection = Collection(tmp_path / "few", max_bytes=3 * size)
    for each in results:
        collection.add(*each)
    files = sorted(file.name for file in (tmp_path / "few").iterdir())
    assert files == [*(ARCHIVES.format(n) for n in (1, 2, 3, 4)), RESULTS]
    assert all((tmp_path / "few" / name).stat().st_size <= 3 * size for name in files)
    assert unpack(tmp_path / "few", tmp_path / "out") == 7
    for study, run, result, file in results:
        place = tmp_path / "out" / study
        assert json.loads((place / "results" / f"{run}.json").read_text()) == result
        assert (place / "per_query" / f"{run}.npz").read_bytes() == file.read_bytes()


def test_a_collection_continues_after_a_line_that_was_cut_off(results, tmp_path):
    Collection(tmp_path / "few").add(*results[0])
    with (tmp_path / "few" / RESULTS).open("a") as file:
        file.write('\n{"study": "s1", "run": "ru')
    collection = Collection(tmp_path / "few")
    for each in [results[0], *results[:3]]:
        collection.add(*each)
    assert unpack(tmp_path / "few", tmp_path / "out") == 3
    with zipfile.ZipFile(tmp_path / "few" / ARCHIVES.format(1)) as archive:
        assert sorted(archive.namelist()) == ["s0/run0.npz", "s0/run2.npz", "s1/run1.npz"]


def test_an_archive_is_whole_at_any_moment(results, tmp_path, monkeypatch):
    collection = Collection(tmp_path / "few")
    collection.add(*results[0])

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        collection.add(*results[1])
    assert unpack(tmp_path / "few", tmp_path / "out") == 1
    assert (tmp_path / "out" / "s0" / "per_query" / "run0.npz").is_file()
    monkeypatch.undo()
    Collection(tmp_path / "few").add(*results[1])
    assert unpack(tmp_path / "few", tmp_path / "out") == 2
