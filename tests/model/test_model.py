import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from umpteen.compute import encoding
from umpteen.data.tokens import TokenStore
from umpteen.errors import ConfigError
from umpteen.model import vectors
from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.model import Model
from umpteen.model.vectors import (
    available_heads,
    head_columns,
    label_search_vectors,
    query_search_vectors,
)

V, L, D = 12, 7, 5


def make_model(heads=("dual", "classifier"), *, n_labels=L, **options):
    torch.manual_seed(0)
    model = Model(BagEncoder(torch.randn(V, 6)), heads=heads, dim=D, n_labels=n_labels, **options)
    if model.label_vectors is not None:
        torch.nn.init.normal_(model.label_vectors)
    return model.eval()


def make_store(n, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 4, n)
    ids = rng.integers(0, V, lengths.sum()).astype(np.uint16)
    return TokenStore(ids, np.concatenate([[0], np.cumsum(lengths)]))


def test_scores_are_inner_products_over_the_temperatures():
    model = make_model(dual_temperature=0.1, classifier_temperature=4.0)
    queries, labels = torch.randn(3, D), torch.randn(2, D)
    torch.testing.assert_close(model.dual_scores(queries, labels), queries @ labels.T / 0.1)
    torch.testing.assert_close(model.classifier_scores(queries, labels), queries @ labels.T / 4)


def test_scores_of_half_precision_vectors_are_float32():
    model = make_model()
    queries = torch.randn(3, D).bfloat16()
    assert model.dual_scores(queries, queries).dtype == torch.float32


def test_temperatures_are_trained_only_when_asked_and_stay_positive():
    assert not make_model().log_scales.requires_grad
    model = make_model(learn_temperatures=True, dual_temperature=0.05)
    assert model.log_scales.requires_grad
    assert model.log_scales[0].item() == pytest.approx(math.log(20))
    with torch.no_grad():
        model.log_scales -= 100.0
    assert (model.log_scales.exp() > 0).all()


@pytest.mark.parametrize(
    ("heads", "names", "width"),
    [
        (("dual", "classifier"), ("dual", "classifier", "combined"), 2 * D),
        (("classifier", "dual"), ("dual", "classifier", "combined"), 2 * D),
        (("dual",), ("dual",), D),
        (("classifier",), ("classifier",), D),
    ],
)
def test_search_vectors_are_the_heads_side_by_side_in_unit_length(heads, names, width):
    model = make_model(heads)
    assert available_heads(model) == names
    queries = query_search_vectors(model, make_store(4))
    labels = label_search_vectors(model, make_store(L, 1))
    assert queries.shape == (4, width)
    assert labels.shape == (L, width)
    for name in names:
        columns = head_columns(model, name)
        size = columns.stop - columns.start
        expected = torch.full((4,), (size // D) ** 0.5)
        torch.testing.assert_close(queries[:, columns].norm(dim=1), expected)


def test_the_combined_score_is_the_sum_of_the_two_cosines():
    model = make_model()
    query_store, label_store = make_store(4), make_store(L, 1)
    queries = query_search_vectors(model, query_store)
    labels = label_search_vectors(model, label_store)
    with torch.no_grad():
        for i in range(4):
            h = model.encode(query_store.take([i]))
            for j in range(L):
                z = model.encode(label_store.take([j]))
                dual = torch.cosine_similarity(model.dual(h), model.dual(z))
                psi = model.label_vectors[j][None]
                classifier = torch.cosine_similarity(model.classifier(h), psi)
                torch.testing.assert_close((queries[i] @ labels[j])[None], dual + classifier)
                for name, expected in (("dual", dual), ("classifier", classifier)):
                    c = head_columns(model, name)
                    torch.testing.assert_close((queries[i, c] @ labels[j, c])[None], expected)


class TablesMade(TorchDispatchMode):
    """Every storage of a matrix of so many rows that is met meanwhile, by its address."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.seen = rows, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.ndim == 2 and len(result) == self.rows:
            storage = result.untyped_storage()
            self.seen[storage._cdata] = storage  # kept, so that no address comes twice
        return result


@pytest.mark.parametrize("heads", [("dual", "classifier"), ("classifier",)])
@pytest.mark.parametrize("storage", ["fp32", "bf16"])
def test_label_search_vectors_are_not_copied_on_the_way(heads, storage, monkeypatch):
    monkeypatch.setattr(vectors, "ROWS_AT_ONCE", 16)
    monkeypatch.setattr(encoding, "TEXTS_PER_CHUNK", 16)
    n = 301
    model = make_model(heads, label_storage=storage, n_labels=n)
    store = make_store(n, 1)
    with TablesMade(n) as made:
        found = label_search_vectors(model, store)
    own = model.label_vectors.untyped_storage()._cdata
    sizes = sorted(kept.nbytes() for key, kept in made.seen.items() if key != own)
    # What is returned, and the dual head's vectors before they are put there.
    assert sizes == [4 * n * D] * ("dual" in heads) + [4 * n * D * len(heads)]
    parts = [torch.nn.functional.normalize(model.label_vectors.detach().float(), dim=1)]
    if "dual" in heads:
        parts.insert(0, vectors.encode_texts(model, store, model.dual, precision="fp32"))
    assert torch.equal(found, torch.cat(parts, dim=1))


def test_a_shared_temperature_divides_both_scores_and_learns_from_both():
    model = make_model(
        dual_temperature=0.1,
        classifier_temperature=4.0,
        learn_temperatures=True,
        share_temperature=True,
    )
    queries, labels = torch.randn(3, D), torch.randn(2, D)
    products = queries @ labels.T
    torch.testing.assert_close(model.classifier_scores(queries, labels), products / 0.1)
    dual, classifier = model.dual_scores(queries, labels), model.classifier_scores(queries, labels)
    (dual.sum() + 3 * classifier.sum()).backward()
    expected = torch.tensor([4 * (products / 0.1).sum(), 0.0])
    torch.testing.assert_close(model.log_scales.grad, expected)


def test_without_normalizing_search_scores_are_inner_products_of_any_size():
    model = make_model(("dual",), normalize=False, dual_temperature=0.5)
    query_store, label_store = make_store(4), make_store(L, 1)
    queries = query_search_vectors(model, query_store)
    labels = label_search_vectors(model, label_store)
    with torch.no_grad():
        linear = model.dual_head.linear
        mine = torch.tanh(linear(model.encode(query_store.take(range(4)))))
        theirs = torch.tanh(linear(model.encode(label_store.take(range(L)))))
        torch.testing.assert_close(queries, mine)
        torch.testing.assert_close(labels, theirs)
        # Trained scores are those of a search, but for the temperature.
        torch.testing.assert_close(model.dual_scores(mine, theirs), queries @ labels.T / 0.5)
    assert (queries.norm(dim=1) - 1).abs().max() > 0.1


@pytest.mark.parametrize("heads", [("dual", "classifier"), ("classifier",)])
def test_a_model_with_a_classifier_normalizes(heads):
    with pytest.raises(ConfigError, match="normalize must be true"):
        make_model(heads, normalize=False)


def test_in_bfloat16_the_heads_still_run_in_float32():
    # A head in bfloat16 leaves unit vectors with some 8 bits: their length would be off by 1e-3.
    model = make_model()
    torch.nn.init.normal_(model.encoder.outer.weight, std=0.1)
    store = make_store(64)
    rough = query_search_vectors(model, store, precision="bf16")
    assert rough.dtype == torch.float32
    for columns in (slice(0, D), slice(D, 2 * D)):
        lengths = rough[:, columns].norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones(64), rtol=1e-5, atol=0)
    exact = query_search_vectors(model, store)
    assert not torch.equal(rough, exact)
    torch.testing.assert_close(rough, exact, rtol=0, atol=0.03)
    labels = label_search_vectors(model, make_store(L, 1), precision="bf16")
    torch.testing.assert_close(labels[:, :D].norm(dim=1), torch.ones(L), rtol=1e-5, atol=0)


def test_label_rows_have_sparse_gradients():
    model = make_model()
    model.label_rows(torch.tensor([4, 1])).sum().backward()
    assert sorted(model.label_vectors.grad.coalesce().indices()[0].tolist()) == [1, 4]


def test_label_dropout_acts_in_training_alone():
    model = make_model(label_dropout=0.5)
    rows = torch.arange(L)
    assert torch.equal(model.label_rows(rows), model.label_vectors)
    assert (model.train().label_rows(rows) == 0).any()


@pytest.mark.parametrize("heads", [(), ("dual", "triple")])
def test_unknown_or_no_heads_are_an_error(heads):
    with pytest.raises(ConfigError, match="heads must be some of dual, classifier"):
        make_model(heads)


def test_a_classifier_on_the_dual_head_scores_with_the_dual_vectors():
    model = make_model(classifier_head="dual")
    encoded = model.encode(make_store(4).take(np.arange(4)))
    torch.testing.assert_close(model.classifier(encoded), model.dual(encoded))
    assert model.classifier_head is None
    assert available_heads(model) == ("dual", "classifier", "combined")
    with pytest.raises(ConfigError, match="cannot use the dual head"):
        make_model(heads=("classifier",), classifier_head="dual")
