"""``umpteen presets``: every preset and every well-known data set with a line of its own."""

import json

from umpteen.config.known_datasets import dataset_names
from umpteen.config.settings import preset_names


def test_every_preset_and_every_data_set_has_a_line(umpteen_command):
    result = umpteen_command("presets")
    assert result.exit_code == 0
    first, second = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert [line.split()[0] for line in first[2:]] == preset_names()
    assert {"unidec", "unidec-frugal", "depsl"} <= set(preset_names())
    assert [line.split()[0] for line in second[2:]] == dataset_names()


def test_json_says_what_each_one_is(umpteen_command):
    found = json.loads(umpteen_command("presets", "--json").stdout)
    assert {kind: list(lines) for kind, lines in found.items()} == {
        "presets": preset_names(),
        "datasets": dataset_names(),
    }
    for summaries in found.values():
        assert all(len(line) > 20 and not line.startswith("#") for line in summaries.values())
