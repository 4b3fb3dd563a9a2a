"""``umpteen presets``: every preset with a line of its own."""

import json

from umpteen.config import preset_names


def test_every_preset_has_a_line(umpteen_command):
    result = umpteen_command("presets")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines()[2:]]
    assert listed == preset_names()
    assert {"unidec", "unidec-frugal", "depsl"} <= set(listed)


def test_json_says_what_each_one_is(umpteen_command):
    found = json.loads(umpteen_command("presets", "--json").stdout)
    assert list(found) == preset_names()
    assert all(len(summary) > 20 and not summary.startswith("#") for summary in found.values())
