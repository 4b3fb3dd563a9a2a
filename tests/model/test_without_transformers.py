"""The default encoder needs neither transformers nor anything it brings."""

import subprocess
import sys

import pytest

CODE = """
import sys
sys.modules["transformers"] = None  # importing it is an error
import umpteen
data = umpteen.load_dataset(sys.argv[1])
model = umpteen.train(data, out=sys.argv[2], overrides=["train.epochs=1", "ensemble.enabled=off"])
print(model.predict("red apple", k=1).ids[0][0])
try:
    umpteen.train(data, out=sys.argv[2] + "-2", overrides=["encoder.name=" + sys.argv[3]])
except umpteen.errors.MissingExtra as error:
    print(error)
"""


@pytest.mark.slow
def test_the_default_trains_and_predicts_without_transformers(
    tiny_data_folder, tiny_bert, tmp_path
):
    arguments = [str(tiny_data_folder), str(tmp_path / "run"), str(tiny_bert)]
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    label, error = done.stdout.splitlines()
    assert label.startswith("L")
    assert error.endswith("install it with: pip install 'umpteen[transformers]'")
