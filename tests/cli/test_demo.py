"""What the demo does with the folder it is given; what it trains is tried by ``make demo``."""

import json

import pytest
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.cli.demo import _finished


def write(folder, config, metrics):
    (folder / "config.json").write_text(config)
    (folder / "metrics.json").write_text(metrics)


@pytest.mark.parametrize(("last", "finished"), [(12, True), (9, False)])
def test_a_run_is_finished_when_its_last_epoch_is_validated(tmp_path, last, finished):
    history = [{"epoch": 3}, {"epoch": last}]
    config = {"config": {"train": {"epochs": 12}}}
    write(tmp_path, json.dumps(config), json.dumps({"validation": history}))
    assert _finished(tmp_path) is finished


@pytest.mark.parametrize("config", ["{}", "[]", "{", '{"config": {"train": 3}}'])
@pytest.mark.parametrize("metrics", ["{}", "[]", "{", '{"validation": []}'])
def test_a_damaged_run_is_one_sentence(tmp_path, monkeypatch, config, metrics, tiny_data):
    from umpteen.data.sources import icd10

    monkeypatch.setattr(icd10, "build", lambda: tiny_data)
    write(tmp_path, config, metrics)
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.strip().splitlines()[-1].startswith(f"umpteen: {tmp_path}")
