"""Tables as people have them: any usual column, separator, delimiter and list is read right."""

from __future__ import annotations

import gzip
import json

import pytest

from umpteen.data.formats import find_format, load_dataset
from umpteen.data.formats.separator_choice import choose_separator
from umpteen.data.formats.table_columns import choose_columns
from umpteen.data.formats.table_options import TableOptions
from umpteen.errors import DataError


def labels_of(data, split="train"):
    ids, targets = data.labels.ids, data[split].targets
    return [[ids[label] for label in targets[row].indices] for row in range(targets.shape[0])]


def written(folder, name, text):
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


FRUIT = ["red,fruit", "fruit,yellow", "red", "yellow,long,fruit"]
FRUIT_LABELS = [["red", "fruit"], ["fruit", "yellow"], ["red"], ["fruit", "yellow", "long"]]


@pytest.mark.parametrize(
    "column",
    ["labels", "label", "Labels", "LABEL", "tags", "Tags", "categories", "keywords", "Subjects"],
)
@pytest.mark.parametrize("text", ["text", "Text", "title", "description", "body"])
def test_usual_columns_are_found_in_any_case(column, text, tmp_path):
    data = load_dataset(written(tmp_path, "a.csv", f"n,{text},{column}\n1,x y,a;b\n2,z,b\n"))
    assert data["train"].titles == ["x y", "z"]
    assert labels_of(data) == [["a", "b"], ["b"]]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (FRUIT, FRUIT_LABELS),
        ([cell.replace(",", ", ") for cell in FRUIT], FRUIT_LABELS),
        ([cell.replace(",", "|") for cell in FRUIT], FRUIT_LABELS),
        ([cell.replace(",", " ; ") for cell in FRUIT], FRUIT_LABELS),
        ([str(cell.split(",")) for cell in FRUIT], FRUIT_LABELS),
        ([json.dumps(cell.split(",")) for cell in FRUIT], FRUIT_LABELS),
        (["['red' 'fruit']", "['fruit' 'yellow']"], [["red", "fruit"], ["fruit", "yellow"]]),
        (["[1 2]", "[2]"], [["1", "2"], ["2"]]),
        (["['it\\'s', 'b']", '["it\'s"]'], [["it's", "b"], ["it's"]]),
        (["shoes,sport", "shoes", "clothes"], [["shoes", "sport"], ["shoes"], ["clothes"]]),
        (["json,schema,web", "http,ssl,pool,url", "text,unicode,charset", "one"],
         [["json", "schema", "web"], ["http", "ssl", "pool", "url"],
          ["text", "unicode", "charset"], ["one"]]),
        (["Springfield, Illinois, USA", "Boston, Massachusetts, USA", "Salem, Oregon, USA"], None),
        (["Paris, France", "Lyon, France", "Rome, Italy"], None),
        (["Smith, John", "Smith, Jane", "Doe, John", "Miller, Ann", "Fox, Tim"], None),
        (["Food, drinks & more", "Books", "Toys, games", "Tools, paint"], None),
        (["1,2-dichloroethane", "1,4-dioxane", "2,4-D", "benzene"], None),
        (["1,000", "2,000", "5"], None),
        (["Books &amp; Comics", "Toys &amp; Games"], None),
        (["R&D;Sales", "Sales", "R&D"], [["R&D", "Sales"], ["Sales"], ["R&D"]]),
        (["Q&amp;A;R&D", "R&#38;D"], [["Q&amp;A", "R&D"], ["R&#38;D"]]),
        (["Neoplasms, Lung;Mice", "Mice;Rats", "Neoplasms, Skin"],
         [["Neoplasms, Lung", "Mice"], ["Mice", "Rats"], ["Neoplasms, Skin"]]),
    ],
)  # fmt: skip
def test_the_labels_of_a_cell(cells, expected, tmp_path):
    quoted = "".join('x,"{}"\n'.format(cell.replace('"', '""')) for cell in cells)
    data = load_dataset(written(tmp_path, "a.csv", f"text,labels\n{quoted}"))
    got = labels_of(data)
    assert [sorted(row) for row in got] == [
        sorted(row) for row in (expected or [[cell] for cell in cells])
    ]


def test_many_rows_with_commas_are_not_one_label_each(tmp_path):
    words = [f"w{number}" for number in range(60)]
    rows = [
        ",".join(dict.fromkeys([words[i * 7 % 60], words[i * 11 % 60], words[i % 13]]))
        for i in range(500)
    ]
    lines = "".join(f'x{place},"{row}"\n' for place, row in enumerate(rows))
    data = load_dataset(written(tmp_path, "a.csv", f"text,tags\n{lines}"))
    assert set(data.labels.ids) == set(words)
    assert "labels separated by commas" in data.notes[0]
    assert "'x1' -> " in data.notes[0]
    assert data.notes[0].count("->") == 3


def test_few_stray_semicolons_do_not_hide_commas():
    cells = [f"a{i % 5},b{i % 7}" for i in range(200)] + ["odd; name"]
    assert choose_separator(cells).character == ","


def test_known_labels_decide_the_separator(tmp_path):
    (tmp_path / "labels.csv").write_text('id,text\n1,"Paris, France"\n2,"Rome, Italy"\n3,Rome\n')
    written(tmp_path, "train.csv", 'text,labels\nx,"Paris, France"\ny,"Rome, Italy"\n')
    assert labels_of(load_dataset(tmp_path)) == [["1"], ["2"]]
    file = written(tmp_path, "one.csv", 'text,labels\nx,"a,b"\ny,c\n')
    assert labels_of(load_dataset(file)) == [["a,b"], ["c"]]
    known = TableOptions().with_known(["a", "b", "z"])
    assert labels_of(load_dataset(file, options=known)) == [["a", "b"], ["c"]]


@pytest.mark.parametrize("separator", [",", "comma", "none", "/", "tab"])
def test_the_users_separator_is_used(separator, tmp_path):
    cell = "a/b,c\td"
    file = written(tmp_path, "a.csv", f'text,labels\nx,"{cell}"\n')
    data = load_dataset(file, options=TableOptions(separator=separator))
    expected = {",": ["a/b", "c\td"], "comma": ["a/b", "c\td"], "none": [cell],
                "/": ["a", "b,c\td"], "tab": ["a/b,c", "d"]}[separator]  # fmt: skip
    assert labels_of(data) == [expected]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_the_delimiter_is_found(delimiter, suffix, tmp_path):
    rows = [["id", "text", "labels"], ["1", "some, text", "a"], ["2", "more; text", "b"]]
    lines = [delimiter.join(f'"{field}"' for field in row) for row in rows]
    file = written(tmp_path, f"a.{suffix}", "\n".join(lines))
    assert find_format(file)[0] == suffix
    data = load_dataset(file)
    assert data["train"].titles == ["some, text", "more; text"]
    assert data["train"].ids == ["1", "2"]
    usual = delimiter == ("," if suffix == "csv" else "\t")
    assert bool(data.notes) != usual


def test_a_file_of_a_spreadsheet_with_its_own_delimiter_line(tmp_path):
    file = written(tmp_path, "a.csv", "\ufeffsep=;\r\ntext;labels\r\nx, y;a\r\nz;\r\n;b;c\r\n")
    with pytest.raises(DataError, match=r"line 5: the row has 3 fields, the header 2"):
        load_dataset(file)
    file = written(tmp_path, "a.csv", "\ufeffsep=;\r\ntext;labels\r\nx, y;a\r\nz;\r\n")
    assert load_dataset(file)["train"].titles == ["x, y", "z"]


@pytest.mark.parametrize("lines", ["red shoes,shoes\nwool coat,clothes\n",
                                   "shoes,red shoes\nclothes,wool coat\n"])  # fmt: skip
def test_two_columns_without_a_header(lines, tmp_path):
    data = load_dataset(written(tmp_path, "a.csv", lines), options=TableOptions(header=False))
    assert data["train"].titles == ["red shoes", "wool coat"]
    assert labels_of(data) == [["shoes"], ["clothes"]]
    assert "no header" in data.notes[0]


def test_columns_without_a_header_are_named_by_number(tmp_path):
    file = written(tmp_path, "a.csv", "3,Some title,Some story\n4,Other,More\n")
    options = TableOptions(["title=2", "content=3"], "1", header=False)
    data = load_dataset(file, options=options)
    assert (data["train"].titles, data["train"].contents) == (
        ["Some title", "Other"],
        ["Some story", "More"],
    )
    assert labels_of(data) == [["3"], ["4"]]


TABLE = 'Name,headline,body,n,Section\np1,A title,A body,1,x\np2,"",Alone,2,"x, y"\n'


@pytest.mark.parametrize(
    ("columns", "titles", "contents"),
    [
        (["headline"], ["A title", ""], None),
        (["headline", "body"], ["A title A body", "Alone"], None),
        (["title=headline", "content=body"], ["A title", ""], ["A body", "Alone"]),
        (["content=body", "title=Name", "title=headline"], ["p1 A title", "p2"],
         ["A body", "Alone"]),
        (["content=body"], ["A body", "Alone"], None),
        (["HEADLINE"], ["A title", ""], None),
    ],
)  # fmt: skip
def test_text_columns_are_joined_or_kept_as_fields(columns, titles, contents, tmp_path):
    options = TableOptions(columns, "Section", "Name")
    data = load_dataset(written(tmp_path, "a.csv", TABLE), options=options)
    assert (data["train"].titles, data["train"].contents) == (titles, contents)
    assert data["train"].ids == ["p1", "p2"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"label_column": "section2"}, "none is named 'section2' .--label-column.. Did you mean"),
        ({"label_column": "Section", "text_columns": ["bdy"]}, "none is named 'bdy' .--text-col"),
        ({"label_column": "Section", "id_column": "key"}, "none is named 'key' .--id-column."),
        ({}, "none has a name that is known for labels. Name it with --label-column"),
    ],
)
def test_a_missing_column_is_answered_with_the_columns_found(options, says, tmp_path):
    file = written(tmp_path, "a.csv", TABLE)
    with pytest.raises(DataError, match=f"a.csv: found the columns Name, headline, .*{says}") as e:
        load_dataset(file, options=TableOptions(**options))
    assert len(str(e.value).removeprefix(str(tmp_path))) < 200


@pytest.mark.parametrize(
    ("names", "title", "content", "guessed"),
    [
        (["text", "labels"], ("text",), (), False),
        (["title", "content", "labels"], ("title",), ("content",), False),
        (["title", "labels"], ("title",), (), False),
        (["text", "title", "labels"], ("title",), ("text",), True),
        (["title", "body", "labels"], ("title",), ("body",), True),
        (["Text", "labels"], ("Text",), (), False),
        (["text", "label"], ("text",), (), False),
        (["text", "tags"], ("text",), (), True),
        (["text", "labels", "tags"], ("text",), (), True),
        (["abstract", "labels", "note"], ("abstract",), (), True),
        (["blurb", "labels"], ("blurb",), (), True),
    ],
)
def test_the_choice_of_text_columns(names, title, content, guessed):
    columns = choose_columns(names, TableOptions())
    assert (columns.title, columns.content, columns.guessed) == (title, content, guessed)


def test_a_label_twice_in_a_row_is_kept_once_and_counted(tmp_path):
    file = written(tmp_path, "a.csv", "text,labels\nx,a;b;a\ny,b\nz,c;c;c\n")
    data = load_dataset(file)
    assert labels_of(data) == [["a", "b"], ["b"], ["c"]]
    assert data["train"].targets.data.tolist() == [1, 1, 1, 1]
    assert data.notes == (f"{file}: 3 labels twice in a row, kept once (first in line 2)",)


def test_rows_without_labels_are_kept_and_counted(tmp_path):
    file = written(tmp_path, "a.jsonl", '{"text": "x", "labels": ["a"]}\n{"text": "y"}\n'
                   '{"text": null, "labels": null}\n')  # fmt: skip
    data = load_dataset(file)
    assert data["train"].titles == ["x", "y", ""]
    assert data["train"].targets.getnnz(axis=1).tolist() == [1, 0, 0]
    assert data.notes == (
        "train: 2 rows without labels, kept as texts that no label fits (first row 2)",
    )


@pytest.mark.parametrize("pretty", [None, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_a_json_array_is_read(pretty, packed, tmp_path):
    rows = [{"text": f"row {i} ü", "label": f"l{i % 3}", "more": [1, {"a": 2}]} for i in range(300)]
    raw = json.dumps(rows, indent=pretty, ensure_ascii=False).encode()
    file = tmp_path / "rows.json"
    file.write_bytes(gzip.compress(raw) if packed else raw)
    data = load_dataset(file)
    assert data["train"].titles == [row["text"] for row in rows]
    assert labels_of(data)[:3] == [["l0"], ["l1"], ["l2"]]


def test_a_json_array_larger_than_the_buffer_is_read(tmp_path):
    rows = [{"text": "long " * 40_000, "labels": ["a"]}, {"text": "short", "labels": ["b"]}]
    file = written(tmp_path, "train.json", json.dumps(rows))
    assert [len(text) for text in load_dataset(file)["train"].titles] == [200_000, 5]
    assert find_format(tmp_path)[0] == "jsonl"


def test_options_of_tables_are_refused_for_other_formats(tmp_path):
    for name, text in {"trn_X.txt": "x\n", "Y.txt": "a\n", "trn_X_Y.txt": "0:1\n"}.items():
        written(tmp_path, name, text)
    with pytest.raises(DataError, match="--label-column is for tables .csv.*is xc-text"):
        load_dataset(tmp_path, options=TableOptions(label_column="tags"))


def test_usual_tables_are_read_without_a_word(tmp_path):
    assert load_dataset(written(tmp_path, "a.csv", "text,labels\nx,a;b\ny,b\n")).notes == ()
    assert load_dataset(written(tmp_path, "a.tsv", "text\tlabels\nx\ta|b\n")).notes == ()


@pytest.mark.parametrize(
    ("options", "says"),
    [({"delimiter": "::"}, "has 2 characters"), ({"separator": ""}, "separator is empty")],
)
def test_impossible_options_are_refused(options, says):
    with pytest.raises(DataError, match=says):
        TableOptions(**options)


def test_quotes_in_a_file_with_tabs_are_text_where_they_quote_nothing(tmp_path):
    lines = 'text\tlabels\n"Hello" she said\ta\n5" disk\tb\n"open\ta\n'
    data = load_dataset(written(tmp_path, "a.tsv", lines))
    assert data["train"].titles == ['"Hello" she said', '5" disk', '"open']
    assert "quotes are part of the text" in data.notes[0]
    data = load_dataset(written(tmp_path, "a.tsv", 'text\tlabels\n"two\nlines"\ta\n5" disk\tb\n'))
    assert data["train"].titles == ["two\nlines", '5" disk']
    assert data.notes == ()


def test_a_text_column_without_a_word_is_not_chosen(tmp_path):
    file = written(tmp_path, "a.csv", "description,summary,tags\n,red shoes,a\n,wool coat,b\n")
    assert load_dataset(file)["train"].titles == ["red shoes", "wool coat"]
    options = TableOptions(["description"])
    assert load_dataset(file, options=options)["train"].titles == ["", ""]


def test_labels_are_in_order_of_first_appearance_whatever_their_cells(tmp_path):
    train = [{"text": "x", "labels": ["b"]}, {"text": "y", "labels": "a;c"}, {"text": "z", "labels": ["d"]}]  # fmt: skip # noqa: E501
    test = [{"text": "t", "labels": ["e", "a"]}]
    for name, rows in (("train", train), ("test", test)):
        written(tmp_path, f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    data = load_dataset(tmp_path)
    assert data.labels.ids == ["b", "a", "c", "d", "e"]
    assert labels_of(data) == [["b"], ["a", "c"], ["d"]]
    assert sorted(labels_of(data, "test")[0]) == ["a", "e"]


def test_a_table_by_columns_is_read_as_data_frames_write_it(tmp_path):
    columns = {"text": {"0": "x", "1": "y"}, "labels": {"0": ["a", "b"], "1": ["b"]}}
    data = load_dataset(written(tmp_path, "a.json", json.dumps(columns)))
    assert data["train"].titles == ["x", "y"]
    assert labels_of(data) == [["a", "b"], ["b"]]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["x", None], "tags": ["a;b", "b"]})
    frame.to_json(tmp_path / "frame.json")
    assert load_dataset(tmp_path / "frame.json")["train"].titles == ["x", ""]


def test_a_file_without_a_suffix_is_a_table_where_options_say_so(tmp_path):
    file = written(tmp_path, "collection", 'ham\tGo until "jurong point\nspam\tFree entry\n')
    with pytest.raises(DataError, match="none of the known formats"):
        load_dataset(file)
    data = load_dataset(file, options=TableOptions(header=False))
    assert data["train"].titles == ['Go until "jurong point', "Free entry"]
    assert data.labels.ids == ["ham", "spam"]


def test_a_name_that_ends_in_text_is_found(tmp_path):
    data = load_dataset(written(tmp_path, "a.csv", "n,comment_text,label\n1,some words,a\n"))
    assert data["train"].titles == ["some words"]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_object_around_the_records_is_read(indent, tmp_path):
    records = [{"text": "x", "labels": ["a"]}, {"text": "y", "labels": ["b", "a"]}]
    for whole in ({"data": records}, {"version": 2, "rows": records}):
        file = written(tmp_path, "a.json", json.dumps(whole, indent=indent))
        assert labels_of(load_dataset(file)) == [["a"], ["a", "b"]]


def test_one_record_with_a_list_is_still_one_record(tmp_path):
    file = written(tmp_path, "a.jsonl", '{"text": "x y", "labels": ["a", "b"]}\n')
    assert labels_of(load_dataset(file)) == [["a", "b"]]


@pytest.mark.parametrize("missing", ["nan", "NaN", ""])
def test_missing_labels_as_pandas_writes_them_are_no_labels(missing, tmp_path):
    data = load_dataset(written(tmp_path, "a.csv", f"text,label\nx,nan-bread\ny,{missing}\n"))
    assert labels_of(data) == [["nan-bread"], []]


def test_whole_numbers_written_with_a_point_are_whole(tmp_path):
    data = load_dataset(written(tmp_path, "a.csv", "text,label\nx,3.0\ny,\nz,12.0\n"))
    assert data.labels.ids == ["3", "12"]
    versions = load_dataset(written(tmp_path, "b.csv", "text,label\nx,3.0\ny,3.1\n"))
    assert versions.labels.ids == ["3.0", "3.1"]


def test_a_short_row_and_an_archive_are_sentences(tmp_path):
    with pytest.raises(DataError, match="line 3: the row has 1 field, the header 2"):
        load_dataset(written(tmp_path, "a.csv", "text,label\nx,a\nonly\n"))
    with pytest.raises(DataError, match="is an archive; unpack it"):
        load_dataset(written(tmp_path, "a.zip", "PK"))
