"""Verdicts and means of learning curves of several orders."""

import pytest

pytest.importorskip("sklearn")
from bench.common.curve_tables import means, verdicts


def curves(*values, knn=(10.0, 20.0)):
    """Rows of one order for each triple: with 10 texts, with 100, and trained on 100."""
    places = [(10, 0), (100, 0), (100, 100)]
    rows = [
        {"data": "d", "order": order, "examples": n, "trained on": trained, "umpteen": value}
        for order, own in enumerate(values)
        for (n, trained), value in zip(places, own, strict=True)
    ]
    for row in rows:
        if not row["trained on"]:
            row["kNN"] = knn[0] if row["examples"] == 10 else knn[1]
    return rows[::-1]


def by_claim(rows):
    return {row["claim"]: row for row in verdicts(rows)}


def test_a_claim_that_is_true_in_every_order_holds():
    found = by_claim(curves((11, 30, 30), (12, 25, 28), (13, 23, 23)))
    assert found["never falls"]["verdict"] == "holds"
    assert found["never falls"]["orders"] == "3 of 3"
    assert found["not below kNN"]["least"] == 1
    assert found["not below kNN"]["at"] == "10 (0)"
    assert "not below LinearSVC" not in found


def test_two_orders_decide_nothing():
    up, down = curves((11, 30, 30), (12, 25, 28)), curves((11, 30, 20), (12, 25, 15))
    assert by_claim(up)["never falls"]["verdict"] == "undecided"
    assert by_claim(down)["never falls"]["verdict"] == "undecided"


def test_a_fall_in_one_order_alone_is_undecided():
    found = by_claim(curves((11, 30, 29), (12, 25, 28), (11, 24, 27)))["never falls"]
    assert found["verdict"] == "undecided"
    assert found["orders"] == "2 of 3"
    assert (found["least"], found["at"]) == (-1, "100 (0) to 100 (100)")


def test_a_fall_of_the_mean_does_not_hold():
    found = by_claim(curves((11, 30, 27), (12, 25, 21.5), (11, 24, 21), (10, 25, 23)))
    assert found["never falls"]["verdict"] == "does not hold"
    assert found["not below kNN"]["verdict"] == "holds"


def test_a_peer_is_compared_before_and_after_training():
    found = by_claim(curves((11, 30, 19), (12, 25, 18), knn=(10.0, 20.0)))["not below kNN"]
    assert (found["orders"], found["least"], found["at"]) == ("0 of 2", -2, "100 (100)")


def test_means_are_of_the_columns_that_every_order_has():
    rows = curves((10, 30, 30), (12, 20, 28))
    del next(row for row in rows if "kNN" in row and row["examples"] == 100)["kNN"]
    first, second, third = means(rows)
    assert (first["umpteen"], second["umpteen"], third["umpteen"]) == (11, 25, 29)
    assert first["kNN"] == 10.0
    assert "kNN" not in second
    assert "kNN" not in third
    assert first["orders"] == 2
