import importlib
import pkgutil
import subprocess
import sys

import pytest

import umpteen

PUBLIC = [
    "Dataset",
    "LabelSet",
    "Predictor",
    "TopK",
    "__version__",
    "evaluate",
    "load_config",
    "load_dataset",
    "rerank",
    "start",
    "train",
]


def test_the_public_names_are_exactly_these():
    assert sorted(umpteen.__all__) == PUBLIC
    assert dir(umpteen) == PUBLIC


@pytest.mark.parametrize("name", [n for n in PUBLIC if n != "__version__"])
def test_every_public_name_is_there_and_documented(name):
    value = getattr(umpteen, name)
    assert value.__name__ == name
    assert value.__doc__


def test_a_public_name_is_never_a_submodule():
    """Importing the submodule would silently replace the function."""
    modules = {module.name for module in pkgutil.iter_modules(umpteen.__path__)}
    assert not modules & set(PUBLIC)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = umpteen.nothing


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert umpteen.__version__ == version("umpteen")


def test_importing_the_package_loads_none_of_its_parts():
    code = "import sys, umpteen; print(*[m for m in sys.modules if m.startswith('umpteen')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["umpteen"]


def test_names_survive_the_import_of_every_module():
    for module in ("umpteen.training.run", "umpteen.evaluation", "umpteen.predictor"):
        importlib.import_module(module)
    assert callable(umpteen.train)
    assert callable(umpteen.evaluate)
