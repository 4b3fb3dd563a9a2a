"""The job of the guide, submitted to a real local Ray: answers of one process.

Skipped where Ray or its dashboard, which takes jobs, is not installed.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("aiohttp_cors", reason="ray[default] takes jobs")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from umpteen.arrow_predictions import ArrowPredictor  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.processes]
ROWS = 3_000
GUIDE = Path(__file__).parent.parent / "docs/guide/scale.md"


@pytest.fixture
def address():
    """The address of a cluster that takes jobs."""
    context = ray.init(
        num_cpus=2,
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        logging_level="error",
        log_to_driver=False,
    )
    yield f"http://{context.dashboard_url}"
    ray.shutdown()


def test_the_job_of_the_guide_answers_as_one_process(address, tiny_run, tmp_path):
    section = GUIDE.read_text("utf-8").split("### On a Ray cluster", 1)[1]
    script = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    command = re.search(r"```sh\n(ray job submit .*?)\n```", section, re.DOTALL).group(1)
    words = ["red", "apple", "pear", "yellow", "banana", "plum", "green"]
    table = pa.table({"text": [f"{words[n % 7]} {words[n % 5]} {n}" for n in range(ROWS)]})
    for name in ("texts", "job"):
        (tmp_path / name).mkdir()
    parquet.write_table(table, tmp_path / "texts" / "all.parquet", row_group_size=500)
    script = script.replace("/shared/run", str(tiny_run)).replace("/shared", str(tmp_path))
    (tmp_path / "job" / "predict_all.py").write_text(script, "utf-8")
    given = command.replace("http://HEAD:8265", address).split()
    given[0] = str(Path(sys.executable).parent / "ray")
    done = subprocess.run(
        given, cwd=tmp_path / "job", capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{ROWS}\n" in done.stdout + done.stderr
    one = ArrowPredictor(tiny_run, device="cpu", k=10)(table)
    assert parquet.read_table(tmp_path / "predictions").equals(one.combine_chunks())
