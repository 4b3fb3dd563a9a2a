"""The loss against a loop, training, and the decision whether the stage is used."""

import json

import numpy as np
import pytest
import torch

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.reranking.decision import Reranked, decide, quality
from umpteen.ranking.reranking.listwise import (
    LearningRate,
    RerankExamples,
    ScoreNetwork,
    TrainOptions,
    listwise_loss,
    network_scores,
    train_network,
)
from umpteen.ranking.reranking.reranker import spread
from umpteen.ranking.reranking.shortlist import PAIR_FEATURES, Shortlist
from umpteen.ranking.reranking.spec import Cost, Reranking


def examples(seed=0, n=200, width=8, useful=True):
    rng = np.random.default_rng(seed)
    positive = rng.random((n, width)) < 0.2
    signal = positive + rng.normal(size=(n, width)) * 0.7
    features = np.stack([signal if useful else rng.normal(size=(n, width)),
                         rng.normal(size=(n, width))], axis=2)  # fmt: skip
    rows = np.stack([rng.permutation(50)[:width] for _ in range(n)])
    rows[:, -1] = -1
    return RerankExamples(
        torch.from_numpy(features).float(),
        torch.from_numpy(rng.normal(size=(n, width))).float(),
        torch.from_numpy(rows),
        torch.from_numpy(positive & (rows >= 0)),
        torch.arange(n),
    )


def test_the_loss_is_the_log_softmax_of_each_positive_among_wrong_ones():
    own = examples(n=20)
    scores, valid = own.base.double(), own.rows >= 0
    losses = []
    for text in range(20):
        right = [i for i in range(8) if valid[text, i] and own.positive[text, i]]
        wrong = [i for i in range(8) if valid[text, i] and not own.positive[text, i]]
        if right and wrong:
            against = sum(float(scores[text, i].exp()) for i in wrong)
            each = [-np.log(float(scores[text, i].exp()) / (float(scores[text, i].exp()) + against))
                    for i in right]  # fmt: skip
            losses.append(np.mean(each))
    assert float(listwise_loss(scores, own.positive, valid)) == pytest.approx(np.mean(losses))


def test_texts_without_right_or_wrong_candidates_have_no_gradient():
    scores = torch.zeros(2, 3, requires_grad=True)
    positive = torch.tensor([[True] * 3, [False] * 3])
    listwise_loss(scores, positive, torch.ones(2, 3, dtype=torch.bool)).backward()
    assert scores.grad is not None
    assert (scores.grad == 0).all()


def test_training_finds_the_useful_feature():
    own = examples()
    network = ScoreNetwork(2)
    assert float(network_scores(own, network).detach().abs().max()) == 0.0
    before = listwise_loss(own.base, own.positive, own.rows >= 0)
    train_network(own, network, TrainOptions(epochs=15, batch=50))
    other = examples(seed=1)
    with torch.no_grad():
        found = other.base + network_scores(other, network)
    after = listwise_loss(found, other.positive, other.rows >= 0)
    assert float(after) < 0.8 * float(before)
    assert (network_scores(other, network)[other.rows < 0] == 0).all()


def test_with_a_cross_encoder_the_network_starts_with_its_score():
    own = examples()
    network = ScoreNetwork(2, direct=1)
    found = network_scores(own, network).detach()
    wanted = torch.where(own.rows >= 0, own.features[:, :, 1], 0.0)
    torch.testing.assert_close(found, wanted)


def test_features_of_pair_scores_are_score_share_and_rank():
    own = examples(n=3)
    scores = own.base
    wide = own.with_pair_scores(scores).features
    assert wide.shape[2] == 2 + PAIR_FEATURES
    assert (wide[own.rows < 0][:, 2:] == 0).all()
    some = scores[0, :7]
    torch.testing.assert_close(wide[0, :7, 2], some)
    torch.testing.assert_close(wide[0, :7, 3], some.log_softmax(0))
    ranks = [float((some > value).sum()) for value in some]
    torch.testing.assert_close(wide[0, :7, 4], torch.log1p(torch.tensor(ranks)))


def test_the_learning_rate_rises_and_falls_by_steps_and_stops_by_time():
    own = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    schedule, rates = LearningRate(own, 20, 1e9), []
    while schedule.step():
        rates.append(own.param_groups[0]["lr"])
    assert len(rates) == 20
    assert max(rates) == rates[1]
    assert rates[0] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1)
    assert not LearningRate(own, 20, 1e-9).step()


def test_candidates_that_are_not_re_ranked_stay_behind():
    chosen = Shortlist(torch.tensor([[2, 0, -1], [-1, -1, -1]]), torch.zeros(2, 3),
                       torch.zeros(2, 3))  # fmt: skip
    valid = torch.tensor([[True, True, True, False], [True] * 4])
    made = spread(torch.tensor([[3.0, -1.0, 9.0], [1.0, 1.0, 1.0]]), chosen, valid)
    assert made.tolist() == [[-1.0, -1.0, 3.0, 0.0], [0.0] * 4]


def reranked(seed, *, useful):
    own = examples(seed, n=300, useful=useful)
    rows, order = own.rows.sort(dim=1)
    found = Candidates(rows, {}, torch.ones_like(rows))
    base = own.base.gather(1, order).double()
    positive = own.positive.gather(1, order)
    base = torch.where(rows >= 0, base, -torch.inf)
    places = base.argsort(dim=1, descending=True)[:, :7]
    values = own.features[:, :, 0].gather(1, order).gather(1, places)
    places = torch.where(rows.gather(1, places) >= 0, places, -1)
    chosen = Shortlist(places, rows.gather(1, places.clamp_min(0)), torch.zeros(places.shape))
    return Reranked(found, base, base, chosen, values, positive, torch.zeros(rows.shape))


def test_it_is_used_where_it_gains():
    found = decide([reranked(0, useful=True), reranked(1, useful=True)], seed=0)
    assert found.kept
    assert found.weight > 0
    assert found.p_value < 1e-4
    assert found.n_texts == 600


def test_it_is_off_where_it_gains_nothing():
    found = decide([reranked(0, useful=False)], seed=0)
    assert not found.kept


def test_quality_is_the_mean_of_precisions():
    part = reranked(2, useful=True)
    found = quality(part, part.scores)
    text = int(np.argmax(found))
    order = part.scores[text].argsort(descending=True)
    hits = part.positive[text][order].double()
    precisions = np.mean([float(hits[:k].sum()) / k for k in (1, 3, 5)])
    best = [min(k, int(part.positive[t].sum())) for k in (1, 3, 5) for t in range(300)]
    norms = np.array(best, float).reshape(3, 300).mean(axis=1)
    scored = np.mean(
        [float(hits[:k].sum()) / norm for k, norm in zip((1, 3, 5), norms, strict=True)]
    )
    assert found[text] == pytest.approx((precisions + scored) / 2)


def test_a_spec_is_read_back_and_damage_is_refused():
    spec = Reranking("features", "reranker-1", "d", 50, 0.5, 0.01, Cost(0.5, 0.02), "texts",
                     {"P@1": 1.5}, 0.01, 12.0)  # fmt: skip
    assert Reranking.from_json(json.loads(json.dumps(spec.as_json()))) == spec
    for name, value in [("kind", "x"), ("folder", "../x"), ("weight", float("nan")),
                        ("candidates", 1), ("min_share", 2.0)]:  # fmt: skip
        with pytest.raises(ValueError, match="re-ranking"):
            Reranking.from_json({**spec.as_json(), name: value})
