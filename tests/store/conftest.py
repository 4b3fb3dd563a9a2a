import pytest

from .helpers import make_run


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")
