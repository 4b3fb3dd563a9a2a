"""``umpteen keys``: make, list and remove keys; sentences for mistakes."""

import json

from click.testing import CliRunner

from umpteen.cli import main
from umpteen.serving.keys import digest, read_keys


def keys(*words):
    return CliRunner().invoke(main, ["keys", *map(str, words)])


def test_a_key_is_made_listed_replaced_and_removed(tmp_path):
    file = tmp_path / "keys.json"
    first = keys("add", file, "page", "--scope", "change", "--rate", "2.5")
    assert first.exit_code == 0
    token = first.stdout.strip()
    assert [key.sha256 for key in read_keys(file)] == [digest(token)]
    listed = json.loads(keys("list", file, "--json").stdout)
    assert listed == [{"name": "page", "scope": "change", "requests_per_second": 2.5}]
    assert "page" in keys("list", file).stdout
    second = keys("add", file, "page").stdout.strip()
    assert second != token
    assert [key.sha256 for key in read_keys(file)] == [digest(second)]
    assert keys("remove", file, "page").exit_code == 0
    assert read_keys(file) == []


def test_an_existing_token_is_taken_from_a_file_and_not_printed(tmp_path):
    (tmp_path / "token").write_text("t" * 20 + "\n")
    done = keys("add", tmp_path / "keys.json", "old", "--token-file", tmp_path / "token")
    assert (done.exit_code, done.stdout) == (0, "")
    assert read_keys(tmp_path / "keys.json")[0].sha256 == digest("t" * 20)


def test_mistakes_are_sentences(tmp_path):
    file = tmp_path / "keys.json"
    for words, sentence in [
        (("list", file), "keys.json"),
        (("remove", file, "none"), "keys.json"),
        (("add", file, "x" * 65), "is no name of a key"),
        (("add", file, "x", "--rate", "-1"), "expected more than 0"),
        (("add", file, "x", "--token-file", tmp_path / "none"), "token cannot be read"),
    ]:
        done = keys(*words)
        assert done.exit_code == 1, words
        assert sentence in done.stderr
        assert not file.exists()
