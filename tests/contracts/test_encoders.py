"""The laws of every row of ENCODERS."""

import numpy as np
import pytest
import torch

from umpteen.model import ENCODERS
from umpteen.registry import resolve
from umpteen.types import Ragged

V = 60


def make(kind, tiny_bert):
    torch.manual_seed(0)
    if kind == "transformer":
        from umpteen.model.pretrained import load_network
        from umpteen.model.transformer import TransformerEncoder

        encoder = TransformerEncoder(load_network(str(tiny_bert)))
    elif kind == "chunked":
        encoder = resolve(ENCODERS, kind, kind="encoder")(make("bag", tiny_bert), max_tokens=6)
    elif kind == "bag":
        encoder = resolve(ENCODERS, kind, kind="encoder")(torch.randn(V, 8), hidden=6)
    elif kind == "convolution":
        encoder = resolve(ENCODERS, kind, kind="encoder")(
            torch.randn(V, 8), channels=5, widths=(1, 2, 4)
        )
    elif kind == "inception":
        encoder = resolve(ENCODERS, kind, kind="encoder")(
            torch.randn(V, 8), channels=5, widths=(2, 3), stride=2, pooled=2
        )
    else:  # of another package
        encoder = resolve(ENCODERS, kind, kind="encoder")(torch.randn(V, 8))
    if kind not in ("transformer", "chunked"):
        with torch.no_grad():
            for parameter in encoder.parameters():  # so that no block hides behind a zero start
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return encoder.eval()


@pytest.fixture(params=sorted(ENCODERS))
def encoder(request, tiny_bert):
    return make(request.param, tiny_bert)


def make_texts(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, V, n).tolist() for n in lengths]


def ragged(texts):
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    return Ragged(np.array([i for t in texts for i in t], np.int32), offsets)


@torch.no_grad()
def vectors(encoder, texts):
    return encoder(ragged(texts))


MANY = make_texts([*range(1, 33), 1, 32, 7, 7, 1])


def test_one_vector_of_the_stated_size_per_text(encoder):
    for n in (1, 2, 5, 37):
        result = vectors(encoder, MANY[:n])
        assert result.shape == (n, encoder.dim)
        assert result.dtype == torch.float32
        assert torch.isfinite(result).all()


@torch.no_grad()
def test_token_ids_may_already_be_on_the_device_and_stay_there(encoder, monkeypatch):
    tokens = ragged(MANY)
    expected = encoder(tokens)
    on_device = Ragged(torch.from_numpy(tokens.ids), tokens.offsets)

    def fetched(*_, **__):
        raise AssertionError("ids on a GPU would be fetched, and the host would wait for them")

    for way in ("__array__", "numpy", "cpu", "tolist"):
        monkeypatch.setattr(torch.Tensor, way, fetched)
    found = encoder(on_device)
    monkeypatch.undo()
    # Perhaps on another path than ids on the host.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_plan_made_beforehand_changes_nothing(encoder):
    layout = getattr(encoder, "layout", None)
    if layout is None:
        pytest.skip("has no plan")
    for n in (1, 37):
        tokens = ragged(MANY[:n])
        planned = Ragged(tokens.ids, tokens.offsets, layout(tokens))
        assert torch.equal(encoder(planned), encoder(tokens))


def test_a_text_does_not_feel_the_other_texts(encoder):
    together = vectors(encoder, MANY)
    alone = torch.cat([vectors(encoder, [text]) for text in MANY])
    # Other shapes sum in another order: some roundings of float32.
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    for start, stop in ((0, 3), (5, 18), (30, 37)):
        part = vectors(encoder, MANY[start:stop])
        torch.testing.assert_close(part, together[start:stop], rtol=1e-4, atol=1e-5)


def test_the_order_of_texts_is_the_order_of_vectors(encoder):
    order = np.random.default_rng(1).permutation(len(MANY))
    turned = vectors(encoder, [MANY[i] for i in order])
    torch.testing.assert_close(turned, vectors(encoder, MANY)[order], rtol=1e-4, atol=1e-5)


def test_other_tokens_give_another_vector(encoder):
    one, other = vectors(encoder, [[5, 6, 7], [5, 6, 8]])
    assert not torch.allclose(one, other, atol=1e-3)


def test_evaluation_mode_has_no_chance_in_it(encoder):
    assert torch.equal(vectors(encoder, MANY), vectors(encoder, MANY))


def test_what_is_saved_is_what_is_loaded(encoder, tmp_path):
    options = encoder.save(tmp_path)
    loaded = type(encoder).load(tmp_path, options).eval()
    assert loaded.kind == encoder.kind
    assert loaded.dim == encoder.dim
    assert torch.equal(vectors(loaded, MANY), vectors(encoder, MANY))


def test_the_kind_is_the_name_in_the_table(encoder):
    assert resolve(ENCODERS, encoder.kind, kind="encoder") is type(encoder)


def test_gradients_reach_every_parameter(encoder):
    encoder(ragged(MANY)).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        if "pooler" in name:  # the Hugging Face pooler is behind what we read
            continue
        assert parameter.grad is not None, name
        gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
        assert torch.isfinite(gradient).all(), name
        assert gradient.abs().sum() > 0, name


def test_row_parameters_have_sparse_gradients_of_the_tokens_seen(encoder):
    own = {id(p) for p in encoder.parameters()}
    texts = [[7, 9, 9, 7, 9, 9, 9], [11] * 6]  # near enough in length to be padded together
    encoder(ragged(texts)).square().sum().backward()
    for parameter in encoder.row_parameters():
        assert id(parameter) in own
        assert parameter.grad.is_sparse
        rows = parameter.grad.coalesce().indices()[0].tolist()
        assert set(rows) <= {7, 9, 11}  # a row-wise optimizer would move padding, too
        dense = parameter.grad.to_dense()
        touched = dense.abs().sum(dim=1).nonzero().flatten().tolist()
        # A single token's weight cancels in a weighted mean of one, hence "some of".
        assert 9 in touched
    for parameter in encoder.parameters():
        if id(parameter) not in {id(p) for p in encoder.row_parameters()}:
            assert parameter.grad is None or not parameter.grad.is_sparse
