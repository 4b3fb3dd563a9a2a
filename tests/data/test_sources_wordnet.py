"""WordNet from four tiny files in its own format, written here."""

import pytest

from umpteen.data.sources import wordnet
from umpteen.data.sources.assembly import text_key
from umpteen.errors import DataError

LICENCE = "  1 This is where the licence stands.  \n  2 It is indented.  \n"

NOUN = [
    "00000100 03 n 01 animal 0 002 ~ 00000200 n 0000 ~ 00000300 n 0000 | a living thing  ",
    "00000200 05 n 02 dog 0 domestic_dog 0 003 @ 00000100 n 0000 #m 00000400 n 0000 "
    '+ 00000700 v 0101 | a pet; "the dog barked"  ',
    "00000300 05 n 01 cat 0 002 @ 00000100 n 0000 @ 00000300 n 0000 | another pet  ",
    "00000400 14 n 01 pack 0 002 %m 00000200 n 0000 @ 00000100 n 0000 | a group  ",
    # ten words, so that the word count is hexadecimal 0a
    "00000500 05 n 0a a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 j 0 001 @i 00000100 n 0000 | many  ",
]
VERB = [
    "00000700 38 v 01 dog 0 002 + 00000200 n 0101 @ 00000800 v 0000 02 + 08 00 + 09 02 "
    '| go after; "dog someone"; "dog me"  ',
    "00000800 38 v 01 follow 0 000 01 + 08 00 | go behind  ",
]
ADJ = [
    "00000900 00 a 01 doglike 0 002 \\ 00000200 n 0101 & 00000950 a 0000 | like a dog  ",
    "00000950 00 s 01 canine(a) 0 001 & 00000900 a 0000 | of dogs (and wolves)  ",
]
ADV = ["00000990 02 r 01 doggedly 0 001 ! 00000990 r 0101 | with persistence  "]

RELATED = {
    "n00000100": [],  # hyponyms do not count
    "n00000200": ["n00000100", "n00000400", "v00000700"],
    "n00000300": ["n00000100"],  # the pointer to itself is dropped
    "n00000400": ["n00000100"],  # neither do meronyms
    "n00000500": ["n00000100"],
    "v00000700": ["n00000200", "v00000800"],  # verb frames are no pointers
    "v00000800": [],
    "a00000900": ["n00000200", "a00000950"],
    "a00000950": ["a00000900"],
    "r00000990": [],
}


def write(folder, **changes):
    lines = {"noun": NOUN, "verb": VERB, "adj": ADJ, "adv": ADV} | changes
    folder.mkdir(exist_ok=True)
    for name, found in lines.items():
        (folder / f"data.{name}").write_text(LICENCE + "\n".join(found) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "dict")


def test_every_synset_has_the_relations_of_its_line(folder):
    found = {
        synset.id: synset
        for part, file in wordnet.FILES.items()
        for synset in wordnet.read_synsets(folder / file, part)
    }
    assert {key: synset.related for key, synset in found.items()} == RELATED
    dog = found["n00000200"]
    assert dog.text == "dog, domestic dog: a pet"
    assert dog.examples == '"the dog barked"'
    assert found["v00000700"].examples == '"dog someone"; "dog me"'
    assert found["a00000950"].text == "canine: of dogs (and wolves)"
    assert found["n00000500"].text == "a, b, c, d, e, f, g, h, i, j: many"


@pytest.mark.parametrize("seed", range(5))
def test_labels_and_filters_follow_from_the_split(folder, seed):
    data = wordnet.build(dict_folder=folder, seed=seed, test_share=0.3)
    train, test = data["train"], data["test"]
    trained = {label for query in train.ids for label in RELATED[query]}
    assert set(data.labels.ids) == trained
    assert not {text_key(t) for t in train.titles} & {text_key(t) for t in test.titles}
    for split in (train, test):
        for row, query in enumerate(split.ids):
            labels = {data.labels.ids[column] for column in split.targets[row].indices}
            assert labels == set(RELATED[query]) & trained
            assert labels
        pairs = [(split.ids[row], data.labels.ids[label]) for row, label in split.filters.tolist()]
        assert sorted(pairs) == sorted((q, q) for q in split.ids if q in trained)
    again = wordnet.build(dict_folder=folder, seed=seed, test_share=0.3)
    assert again.labels.fingerprint == data.labels.fingerprint
    assert again["test"].ids == test.ids


def test_progress_names_each_file(folder):
    lines = []
    wordnet.build(dict_folder=folder, log=lines.append)
    assert [line for line in lines if "data.adv" in line]


def test_a_missing_folder_names_the_package_and_the_option(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"wordnet-base.*--dict"):
        wordnet.build(dict_folder=tmp_path)
    monkeypatch.setattr(wordnet, "PLACES", (tmp_path / "nowhere",))
    with pytest.raises(DataError, match="nowhere"):
        wordnet.build()


@pytest.mark.parametrize(
    "line",
    [
        "00000100 03 n 01 animal 0 002 ~ 00000200 n 0000 | too few pointers",
        "00000100 03 n 01 animal 0 000 no gloss",
        "00000100 03 n zz animal 0 000 | a word count that is no number",
        "x | short",
    ],
)
def test_a_damaged_line_is_named(tmp_path, line):
    folder = write(tmp_path / "dict", verb=[VERB[1], line])
    with pytest.raises(DataError, match=r"data\.verb, line 4: .*is not a synset"):
        wordnet.build(dict_folder=folder)


def test_files_of_two_versions_are_refused(tmp_path):
    folder = write(tmp_path / "dict", verb=VERB[:1])
    with pytest.raises(DataError, match="points to v00000800"):
        wordnet.build(dict_folder=folder)


def test_bytes_that_are_no_text_are_refused(folder):
    (folder / "data.adv").write_bytes(b"00000990 02 r 01 \xff\xfe 0 000 | x\n")
    with pytest.raises(DataError, match="not UTF-8"):
        wordnet.build(dict_folder=folder)
