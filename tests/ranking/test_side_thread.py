"""Searches beside the computing of terms: the same predictions, errors included."""

import os

import numpy as np
import pytest

from umpteen import Predictor
from umpteen.compute.threads import cpu_threads
from umpteen.ranking import queries
from umpteen.ranking.queries import started


@pytest.mark.parametrize("n", [1, 7])
def test_predictions_do_not_depend_on_the_thread_of_a_search(tiny_run, n):
    predictor = Predictor.load(tiny_run, device="cpu")
    texts = ["old river mirror", "red apple", "nothing known", "red bridge", "", "a b", "apple"][:n]
    found = []
    for threads in (1, 2):
        with cpu_threads(threads):
            found.append(predictor.predict(texts, 5))
    np.testing.assert_array_equal(found[0].rows, found[1].rows)
    np.testing.assert_allclose(found[0].scores, found[1].scores, atol=1e-6)  # torch's own products


def test_an_error_of_the_work_reaches_whoever_waits():
    def work():
        raise ZeroDivisionError("of the work")

    for threads in (1, 2):
        with cpu_threads(threads):
            waited_for = started(work)
            with pytest.raises(ZeroDivisionError, match="of the work"):
                waited_for()


def test_a_forked_process_has_threads_of_its_own():
    own = queries._threads(os.getpid())
    assert queries._threads(-1) is not own
