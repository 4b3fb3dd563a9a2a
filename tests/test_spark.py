"""The documented Spark example on a real local Spark: answers of one process, and no row lost.

Skipped where pyspark is not installed. Starting Spark takes longer than all else here.
"""

import re
import sys
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from umpteen.arrow_predictions import ArrowPredictor  # noqa: E402

pytestmark = pytest.mark.slow
ROWS = 5_000
GUIDE = Path(__file__).parent.parent / "docs/guide/scale.md"


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "700")
            .getOrCreate()
        )
        yield session
        session.stop()


def test_the_example_of_the_guide_answers_as_one_process(spark, tiny_run, tmp_path):
    words = ["red", "apple", "pear", "yellow", "banana", "plum", "green"]
    texts = [f"{words[n % 7]} {words[n % 5]} {n}" for n in range(ROWS)]
    table = pa.table({"id": [f"t{n:05}" for n in range(ROWS)], "text": texts})
    (tmp_path / "texts").mkdir()
    parquet.write_table(table, tmp_path / "texts" / "all.parquet", row_group_size=500)
    section = GUIDE.read_text("utf-8").split("### On Spark", 1)[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    code = code.replace("/shared/run", str(tiny_run)).replace("/shared", str(tmp_path))
    exec(compile(code, "scale.md", "exec"), {"spark": spark})
    found = parquet.read_table(tmp_path / "predictions").sort_by("id")
    assert found.column("id").to_pylist() == table.column("id").to_pylist()
    one = ArrowPredictor(tiny_run, device="cpu", k=10)(table)
    assert found.column("labels").to_pylist() == one.column("labels").to_pylist()
    assert found.column("note").to_pylist() == one.column("note").to_pylist()
