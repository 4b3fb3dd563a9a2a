"""Two trainings that were given the same folder: the second one is refused."""

import threading

import pytest
from small_runs import fit, outcome

from umpteen.errors import RunError, UmpteenError
from umpteen.files import atomic_folder
from umpteen.locks import exclusive_folder
from umpteen.predictor import Predictor
from umpteen.training.reporters import Silent

BUSY = "another training writes to"


class During(Silent):
    """Calls a function once, while training is under way."""

    def __init__(self, function):
        self.function = function

    def step(self, info, epoch):
        function, self.function = self.function, lambda: None
        function()


def attempt(data, out, problems, **options):
    def again():
        try:
            fit(data, out, "seed=5", **options)
        except UmpteenError as error:
            problems.append(str(error))

    return again


@pytest.mark.parametrize("options", [{}, {"resume": True}])
def test_a_second_training_with_the_same_folder_is_refused(tiny_data, tmp_path, options):
    problems = []
    again = attempt(tiny_data, tmp_path / "run", problems, **options)
    fit(tiny_data, tmp_path / "run", "train.epochs=1", reporters=[During(again)])
    fit(tiny_data, tmp_path / "alone", "train.epochs=1")
    assert len(problems) == 1
    assert BUSY in problems[0] or "is not empty" in problems[0]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "alone")


def test_of_two_that_start_at_the_same_time_one_is_refused(tiny_data, tmp_path, monkeypatch):
    """Both have seen an empty folder before either has written to it."""
    from umpteen.run_folder import RunFolder

    both = threading.Barrier(2)
    require_empty, seen = RunFolder.require_empty, threading.local()

    def wait_for_the_other(folder):
        require_empty(folder)
        if not hasattr(seen, "once"):
            seen.once = True
            both.wait(60)

    monkeypatch.setattr(RunFolder, "require_empty", wait_for_the_other)
    problems, ended = [], []

    def train(seed):
        try:
            fit(tiny_data, tmp_path / "run", f"seed={seed}", "train.epochs=1")
            ended.append(seed)
        except RunError as error:
            problems.append(str(error))

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == len(problems) == 1
    assert BUSY in problems[0] or "is not empty" in problems[0]
    assert Predictor.load(tmp_path / "run", device="cpu")


def test_a_refused_training_leaves_no_folder(tiny_data, tmp_path):
    with pytest.raises(UmpteenError):
        fit(tiny_data, tmp_path / "run", "train.epochs=0")
    assert not (tmp_path / "run").exists()


def test_the_lock_is_released_after_an_error(tmp_path):
    def fail_inside():
        with exclusive_folder(tmp_path / "a" / "b", busy=RunError("busy")):
            assert (tmp_path / "a" / "b").is_dir()
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail_inside()
    assert not (tmp_path / "a" / "b").exists()


def test_a_folder_that_appeared_meanwhile_is_not_replaced(tmp_path):
    place = tmp_path / "out"

    def be_second():
        with atomic_folder(place) as temporary:
            (temporary / "second").touch()
            place.mkdir()
            (place / "first").touch()

    with pytest.raises(UmpteenError, match="exists already"):
        be_second()
    assert [file.name for file in place.iterdir()] == ["first"]
    assert list(tmp_path.iterdir()) == [place]
