"""Debtags from tiny lists in apt's format, written here."""

import pytest

from umpteen.data.sources import debtags
from umpteen.data.sources.assembly import text_key
from umpteen.errors import ConfigError, DataError

TAGS = {
    "editor": {"role::program", "works-with::text", "interface::x11"},
    "viewer": {"role::program", "works-with::text", "interface::x11", "scope::utility"},
    "libtext": {"role::shared-lib", "devel::library"},
    "libtext-perl": {"role::shared-lib", "devel::library", "devel::lang:perl"},
    "libtext-dev": {"role::devel-lib", "devel::library"},
    "libfont": {"role::shared-lib", "devel::library"},
    "libfont-dev": {"role::devel-lib", "devel::library"},
    "shell": {"role::program", "interface::shell", "scope::utility"},
    "untagged": set(),
}


def stanza(name, tags, description="", field="Tag"):
    lines = [f"Package: {name}", f"Description: summary of {name}"]
    if description:
        lines.append(f" {description}")
    if tags:
        # Lists break long fields into indented lines.
        lines.append(f"{field}: " + ",\n ".join(sorted(tags)))
    return "\n".join(lines) + "\n"


@pytest.fixture
def lists(tmp_path):
    text = "\n".join(stanza(name, tags, f"About {name}.") for name, tags in TAGS.items())
    (tmp_path / "host_dists_stable_main_binary-amd64_Packages").write_text(text)
    return tmp_path


def pairs_of(data):
    return {
        query: {data.labels.ids[column] for column in split.targets[row].indices}
        for split in data.splits.values()
        for row, query in enumerate(split.ids)
    }


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_the_tags_of_a_package(lists, seed):
    data = debtags.build(lists=lists, min_tags=1, min_queries=1, test_share=0.3, seed=seed)
    trained = {tag for name in data["train"].ids for tag in TAGS[name]}
    assert set(data.labels.ids) == trained
    assert list(data.labels.ids) == sorted(trained)
    found = pairs_of(data)
    expected = {name: tags & trained for name, tags in TAGS.items() if tags & trained}
    assert found == expected
    assert not data["train"].filters.size


def test_texts_are_descriptions_without_the_name(lists):
    data = debtags.build(lists=lists, min_tags=1, min_queries=1)
    train = data["train"]
    for query, title, content in zip(train.ids, train.titles, train.contents, strict=True):
        assert (title, content) == (f"summary of {query}", f"About {query}.")
    assert data.labels.titles[data.labels.row("role::program")] == "role: program"


def test_rare_labels_and_sparsely_tagged_packages_are_left_out(lists):
    data = debtags.build(lists=lists, min_tags=3, min_queries=2, test_share=0.25, seed=0)
    assert set(pairs_of(data)) <= {"editor", "viewer", "shell", "libtext-perl"}
    assert data.label_counts.min() >= 2


def test_equal_texts_are_in_one_split(tmp_path):
    tags = {"role::program", "scope::utility", "interface::x11"}
    blocks = []
    for number in range(60):
        block = stanza(f"package-{number}", tags)
        blocks.append(block.replace(f"summary of package-{number}", f"Summary {number % 20}"))
    (tmp_path / "x_Packages").write_text("\n".join(blocks))
    data = debtags.build(lists=tmp_path, test_share=0.4, seed=3)
    sides = [{text_key(title) for title in split.titles} for split in data.splits.values()]
    assert not sides[0] & sides[1]
    assert sum(map(len, sides)) == 20
    again = debtags.build(lists=tmp_path, test_share=0.4, seed=3)
    assert again["test"].ids == data["test"].ids
    other = debtags.build(lists=tmp_path, test_share=0.4, seed=4)
    assert other["test"].ids != data["test"].ids


def test_abbreviated_and_special_tags():
    field = "devel::{lang:c,library}, role::program,role::program,\n special::not-yet-tagged"
    assert debtags.parse_tags(field) == ["devel::lang:c", "devel::library", "role::program"]
    assert debtags.parse_tags("") == []
    assert debtags.tag_text("devel::lang:perl") == "devel: lang perl"
    assert debtags.tag_text("plain") == "plain"


def test_lists_without_tags_are_refused(tmp_path):
    (tmp_path / "x_Packages").write_text(stanza("editor", {"role::program"}, field="Other"))
    with pytest.raises(DataError, match="none of 1 packages has a Tag field"):
        debtags.build(lists=tmp_path)
    with pytest.raises(DataError, match=r"apt-get update.*--lists"):
        debtags.build(lists=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="1 or more, not 0"):
        debtags.build(lists=tmp_path, min_tags=0)
