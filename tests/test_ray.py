"""Bulk prediction on a real local Ray: answers of one process, also after a worker was killed.

Skipped where Ray is not installed. Starting Ray takes longer than all else here.
"""

import contextlib
import os
import signal
import threading
import time

import pytest

ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from umpteen.arrow_predictions import ArrowPredictor  # noqa: E402
from umpteen.ray import predict_files  # noqa: E402

pytestmark = pytest.mark.slow
ROWS, DEADLINE_SECONDS = 40_000, 180


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    place = tmp_path_factory.mktemp("inputs")
    words = ["red", "apple", "pear", "yellow", "banana", "plum", "green"]
    texts = [f"{words[n % 7]} {words[n % 5]} {n}" for n in range(ROWS)]
    table = pa.table({"number": range(ROWS), "text": texts})
    parquet.write_table(table, place / "all.parquet", row_group_size=1000)
    return place


@pytest.fixture(scope="module")
def one_process(tiny_run, inputs):
    return ArrowPredictor(tiny_run, device="cpu", k=5)(parquet.read_table(inputs))


def actors():
    """The worker processes that predict."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            if "PartPredictor" in " ".join(each.cmdline()):
                found.append(each)
    return found


def test_two_workers_answer_as_one_process_although_one_is_killed(
    tiny_run, inputs, one_process, tmp_path
):
    out, done = tmp_path / "out", []

    def work():
        done.append(predict_files(tiny_run, inputs, out, rows_per_part=1000, k=5))

    thread = threading.Thread(target=work)
    thread.start()
    limit = time.monotonic() + DEADLINE_SECONDS
    while not list(out.glob("part-*")) and time.monotonic() < limit:
        time.sleep(0.01)
    victims = actors()
    assert victims
    os.kill(victims[0].pid, signal.SIGKILL)
    at_the_kill = len(list(out.glob("part-*")))
    thread.join(DEADLINE_SECONDS)
    assert at_the_kill < 40
    assert done == [ROWS]
    found = parquet.read_table(out)
    assert found.column("number").to_pylist() == list(range(ROWS))  # no row lost or doubled
    assert found.equals(one_process.combine_chunks())
    assert predict_files(tiny_run, inputs, out, rows_per_part=1000, k=5) == ROWS  # nothing to do


def test_more_workers_than_cores_do_not_wait_for_each_other(tiny_run, inputs, tmp_path):
    assert predict_files(tiny_run, inputs, tmp_path, workers=5, rows_per_part=4000, k=5) == ROWS


def test_a_part_that_cannot_be_predicted_is_an_error(tiny_run, inputs, tmp_path):
    with pytest.raises(Exception, match="no column 'words'"):
        predict_files(tiny_run, inputs, tmp_path, text_column="words", k=5)


def test_a_ray_data_set_gets_the_same_columns(tiny_run, inputs, one_process):
    dataset = ray.data.read_parquet(str(inputs)).map_batches(
        ArrowPredictor,
        fn_constructor_args=(str(tiny_run),),
        fn_constructor_kwargs={"device": "cpu", "k": 5},
        batch_format="pyarrow",
        batch_size=1000,
        compute=ray.data.ActorPoolStrategy(size=1),
    )
    tables = [ray.get(each) for each in dataset.to_arrow_refs()]
    whole = pa.concat_tables(tables).sort_by("number")
    assert (
        whole.select(["number", "labels"]).to_pylist()[:2000]
        == (one_process.select(["number", "labels"]).to_pylist()[:2000])
    )
    assert len(whole) == ROWS
