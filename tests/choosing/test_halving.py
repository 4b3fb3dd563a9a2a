"""Who goes on, who wins, and what happens when the time is over early."""

import pytest

from umpteen.choosing.halving import Trial, entrants, ranked, rungs_of, winner


@pytest.mark.parametrize(
    ("epochs", "expected"), [(1, [1]), (2, [1]), (3, [1]), (4, [1, 2]), (9, [1, 3]), (30, [4, 10])]
)
def test_rungs_are_shorter_than_the_run(epochs, expected):
    assert rungs_of(epochs) == expected


def first_rung(values):
    return [Trial(candidate, 0, value) for candidate, value in enumerate(values)]


def test_the_best_third_goes_on_best_first():
    trials = first_rung([3.0, 9.0, 1.0, 7.0, 8.0, 2.0, 4.0, 5.0, 6.0])
    assert entrants(9, trials, 0) == list(range(9))
    assert entrants(9, trials, 1) == [1, 4, 3]


def test_at_least_two_go_on_and_ties_go_to_the_earlier():
    assert entrants(3, first_rung([1.0, 2.0, 2.0]), 1) == [1, 2]
    assert ranked(first_rung([5.0, 5.0]), 0) == [0, 1]


def test_the_longest_trials_decide_where_two_can_be_compared():
    trials = first_rung([3.0, 2.0, 1.0])
    assert winner(trials) == 0
    assert winner([*trials, Trial(1, 1, 9.0)]) == 0  # it has run longer, and alone
    assert winner([*trials, Trial(0, 1, 8.0), Trial(1, 1, 9.0)]) == 1


def test_without_a_trial_the_settings_stay():
    assert winner([]) == 0
