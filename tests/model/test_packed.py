"""The laws of every row of PACKED: packed equals padded, forward and backward."""

import copy
from itertools import cycle

import numpy as np
import pytest
import torch
import transformers

from umpteen.compute.grad_cache import Side, cached_vectors, chunk_randomness
from umpteen.errors import UmpteenError
from umpteen.extras import installed
from umpteen.model import packed_forward
from umpteen.model.packed import PACKED, packed_form
from umpteen.model.packed_forward import encode_packed, lay_out_packed
from umpteen.model.pretrained import load_network
from umpteen.model.transformer import TransformerEncoder
from umpteen.types import Ragged

V, LONGEST = 60, 40
# Where kernels run: in Triton's interpreter without a GPU.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = {
    "vocab_size": V, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 40, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
SMALL_DISTIL = {
    "vocab_size": V, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40,
    "max_position_embeddings": LONGEST, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
lengths_of_texts = [1, 1, 2, 3, 3, 5, 7, 11, 17, 23, LONGEST, LONGEST]
needs_triton = pytest.mark.skipif(not installed("triton"), reason="the kernels need triton")
every_network = pytest.mark.parametrize("name", sorted(PACKED))
# The kernels see a network taken apart, so one of each way to do that.
FORMS = sorted({d: n for n, d in PACKED.items()}.values())
POOLINGS = ["mean", "first", "last"]
every_form = pytest.mark.parametrize("name", FORMS)
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)


def make(name, **changes):
    """A network of the table with random weights, none of which is zero or one."""
    torch.manual_seed(3)
    kind = getattr(transformers, name)
    if name == "DistilBertModel":
        options = {**SMALL_DISTIL, **changes}
    else:
        # Those of the RoBERTa kind have two rows of positions that no token gets.
        extra = 0 if name in ("BertModel", "ElectraModel", "ErnieModel") else 2
        options = {**SMALL, "max_position_embeddings": LONGEST + extra, **changes}
        if extra:
            options = {"pad_token_id": 1, **options}
        if name == "ElectraModel":
            options = {"embedding_size": 10, **options}
    network = kind(kind.config_class(**options))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.2)
    return network


def make_texts(lengths=lengths_of_texts, seed=0):
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lengths))
    return [rng.integers(5, V, lengths[i]).tolist() for i in order]


def ragged(texts):
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    return Ragged(np.array([i for t in texts for i in t], np.int32), offsets)


def padded(network, texts, pooling):
    """One padded batch through the library's own code."""
    device = next(network.parameters()).device
    ids = torch.full((len(texts), max(map(len, texts))), 1)
    mask = torch.zeros_like(ids)
    for i, text in enumerate(texts):
        ids[i, : len(text)] = torch.tensor(text)
        mask[i, : len(text)] = 1
    hidden = network(input_ids=ids.to(device), attention_mask=mask.to(device))[0]
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "last":
        return torch.stack([h[len(t) - 1] for h, t in zip(hidden, texts, strict=True)])
    return torch.stack([h[: len(t)].mean(dim=0) for h, t in zip(hidden, texts, strict=True)])


def packed(network, tokens, *, fused, **options):
    form = packed_form(network)
    return encode_packed(form, lay_out_packed(form, tokens, fused=fused), fused=fused, **options)


def gradients(vectors, network, above):
    network.zero_grad()
    vectors.backward(above.to(vectors.dtype))
    return {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


def assert_equal(found, expected, **tolerance):
    assert set(found) == set(expected)
    for name, gradient in found.items():
        torch.testing.assert_close(
            gradient.double(), expected[name], **tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@every_network
@every_pooling
@pytest.mark.parametrize("training", [False, True])
def test_packed_equals_padded_forward_and_backward(name, pooling, training):
    network = make(name).double().train(training)
    texts = make_texts()
    expected = padded(network, texts, pooling)
    above = torch.randn_like(expected)
    wanted = gradients(expected, network, above)
    encoder = TransformerEncoder(network, pooling=pooling)
    found = encoder(ragged(texts))
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected)
    assert_equal(gradients(found, network, above), wanted)
    unused = {n for n, p in network.named_parameters() if p.grad is None}
    assert all("pooler" in n for n in unused)


@every_network
@every_pooling
def test_few_tokens_without_gradients_equal_padded_ones(name, pooling, monkeypatch):
    network = make(name).eval()
    encoder = TransformerEncoder(network, pooling=pooling).eval()
    exact = copy.deepcopy(network).double()
    texts = make_texts()
    assert sum(map(len, texts)) <= packed_forward.FEW_TOKENS
    monkeypatch.setattr(packed_forward, "_plain", None)  # not to be called
    with torch.no_grad():
        for _ in range(2):
            found = encoder(ragged(texts))
            expected = padded(exact, texts, pooling)
            torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
            for mine, theirs in zip(network.parameters(), exact.parameters(), strict=True):
                mine.mul_(1.5)  # the second time with changed weights
                theirs.mul_(1.5)


@pytest.mark.parametrize("why", ["many tokens", "gradients", "dropout", "a large network"])
def test_weights_are_not_kept_twice_where_that_brings_nothing(why, monkeypatch):
    encoder = TransformerEncoder(make("BertModel")).train(why == "dropout")
    if why == "many tokens":
        monkeypatch.setattr(packed_forward, "FEW_TOKENS", 10)
    if why == "a large network":
        monkeypatch.setattr(packed_forward, "MAX_READY", 10)
    with torch.set_grad_enabled(why == "gradients"):
        encoder(ragged(make_texts()))
    assert not encoder._form().ready._held


@needs_triton
@pytest.mark.parametrize(("name", "pooling"), zip(FORMS, cycle(POOLINGS)))
def test_the_kernels_equal_padded_forward_and_backward(name, pooling):
    network = make(name).to(DEVICE)
    texts = make_texts()
    exact = copy.deepcopy(network).double()
    expected = padded(exact, texts, pooling)
    above = torch.randn_like(expected)
    wanted = gradients(expected, exact, above)
    found = packed(network, ragged(texts), pooling=pooling, training=True, fused=True)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    assert_equal(gradients(found, network, above), wanted, rtol=1e-3, atol=2e-3)


@needs_triton
@pytest.mark.parametrize("name", ["BertModel", "DistilBertModel"])
def test_the_kernels_in_half_precision_are_near(name):
    """In float16: the interpreter multiplies no bfloat16."""
    network = make(name).to(DEVICE)
    texts = make_texts()
    exact = copy.deepcopy(network).double()
    expected = padded(exact, texts, "mean")
    above = torch.randn_like(expected)
    wanted = gradients(expected, exact, above)
    with torch.autocast(DEVICE.type, dtype=torch.float16):
        found = packed(network, ragged(texts), pooling="mean", training=True, fused=True)
    assert found.dtype == torch.float32
    assert (found - expected).norm() < 3e-3 * expected.norm()
    for key, gradient in gradients(found, network, above).items():
        assert gradient.dtype == torch.float32
        assert (gradient - wanted[key]).norm() < 0.01 * wanted[key].norm() + 5e-3, key


@needs_triton
def test_texts_too_long_for_tiles_go_their_own_way():
    network = make("BertModel", max_position_embeddings=130).to(DEVICE)
    texts = make_texts([1, 64, 65, 128, 129])
    exact = copy.deepcopy(network).double()
    expected = padded(exact, texts, "mean")
    found = packed(network, ragged(texts), pooling="mean", training=False, fused=True)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    above = torch.randn_like(expected)
    wanted = gradients(expected, exact, above)
    assert_equal(gradients(found, network, above), wanted, rtol=1e-3, atol=2e-3)


@needs_triton
def test_a_layer_keeps_no_more_than_it_must():
    """Queries, keys and values, and two sums: all else is made again from these."""
    tokens = ragged(make_texts())
    n = len(tokens.ids)

    def kept(layers):
        network = make("BertModel", num_hidden_layers=layers, **DROPOUTS).to(DEVICE)
        seen = {}

        def pack(tensor):
            if len(tensor) == n:
                storage = tensor.untyped_storage()
                seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            vectors = packed(network, tokens, pooling="mean", training=True, fused=True)
        assert vectors.requires_grad
        return sum(seen.values())

    statistics = 4  # a mean and an inverse deviation for each norm
    assert kept(3) - kept(2) == 4 * n * (5 * 24 + statistics)


DROPOUTS = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_triton)])
def test_the_same_random_state_gives_the_same_dropout(fused):
    """What a gradient cache counts on: chunks are encoded twice, the second time with a graph."""
    network = make("BertModel", **DROPOUTS).to(DEVICE)
    chunks = [ragged(make_texts([7, 1, 12, 3], seed=1)), ragged(make_texts([4, 9, 2], seed=2))]

    def encode(tokens):
        return packed(network, tokens, pooling="mean", training=True, fused=fused)

    plain = []
    for i, chunk in enumerate(chunks):
        with chunk_randomness(7, 0, i):
            plain.append(encode(chunk))
    above = torch.randn(7, 24, device=DEVICE)
    wanted = {n: g.double() for n, g in gradients(torch.cat(plain), network, above).items()}
    cached = cached_vectors(Side(encode, chunks), seed=7)
    torch.testing.assert_close(cached, torch.cat(plain))
    assert_equal(gradients(cached, network, above), wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(encode(chunks[0]), plain[0], atol=1e-2)


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_triton)])
def test_dropout_leaves_the_mean_where_it_is(fused):
    """Averaged over draws, dropout is all but as if it were not there."""
    network = make("BertModel", num_hidden_layers=1, hidden_dropout_prob=0.0,
                   attention_probs_dropout_prob=0.3)  # fmt: skip
    network = network.to(DEVICE)
    tokens = ragged([[7, 8, 9, 10, i] for i in range(5, 25)])
    with torch.no_grad():
        torch.manual_seed(0)
        draws = torch.stack([
            packed(network, tokens, pooling="first", training=True, fused=fused)
            for _ in range(12)
        ])  # fmt: skip
        still = packed(network, tokens, pooling="first", training=False, fused=fused)
    spread = draws.std(dim=0).mean()
    assert spread > 0.05
    assert (draws.mean(dim=0) - still).abs().mean() < 0.4 * spread  # a single draw is 0.8 off


def test_equal_texts_are_encoded_once_and_share_a_dropout():
    network = make("BertModel", **DROPOUTS).train()
    texts = make_texts()
    texts = [*texts, texts[2], texts[0], texts[2]]
    encoder = TransformerEncoder(network)
    found = encoder(ragged(texts))
    assert torch.equal(found[2], found[-1])
    assert torch.equal(found[0], found[-2])
    again = encoder(ragged(texts))
    assert not torch.equal(found, again)
    # And their gradients add up.
    network.eval()
    above = torch.randn(len(texts), 24)
    wanted = gradients(padded(network, texts, "mean"), network, above)
    found = gradients(encoder(ragged(texts)), network, above)
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=1e-3)


def test_equal_texts_are_encoded_once_where_they_are_padded_too():
    network = transformers.T5EncoderModel(small_t5())
    texts = make_texts()
    texts = [*texts, texts[2], texts[0], texts[2]]
    encoder = TransformerEncoder(network).train()
    seen = []
    network.register_forward_pre_hook(
        lambda _, given, named: seen.append(len(named["input_ids"])), with_kwargs=True
    )
    found = encoder(ragged(texts))
    assert sum(seen) == len(texts) - 3
    assert torch.equal(found[2], found[-1])  # with one dropout
    assert torch.equal(found[0], found[-2])
    encoder.eval()
    torch.testing.assert_close(encoder(ragged(texts)), padded(network, texts, "mean"))
    empty = encoder(ragged([texts[0], [], texts[0]]))  # nobody looks for repeats there
    torch.testing.assert_close(empty[0], empty[2])


@pytest.mark.parametrize("saved", ["T5Model", "T5EncoderModel"])
def test_of_an_encoder_with_a_decoder_the_encoder_is_taken(saved, tmp_path):
    theirs = getattr(transformers, saved)(small_t5()).eval()
    theirs.save_pretrained(tmp_path)
    encoder = TransformerEncoder(load_network(str(tmp_path))).eval()
    expected = padded(getattr(theirs, "encoder", theirs), make_texts(), "mean")
    torch.testing.assert_close(encoder(ragged(make_texts())), expected)
    options = encoder.save(tmp_path / "again")
    loaded = TransformerEncoder.load(tmp_path / "again", options).eval()
    assert torch.equal(loaded(ragged(make_texts())), encoder(ragged(make_texts())))


def test_a_network_whose_embeddings_are_as_wide_as_its_layers_is_not_projected():
    network = make("ElectraModel", embedding_size=24).double().eval()
    assert packed_form(network).project is None
    assert packed_form(make("ElectraModel")).project is not None
    found = TransformerEncoder(network)(ragged(make_texts()))
    torch.testing.assert_close(found, padded(network, make_texts(), "mean"))


@every_network
def test_bfloat16_is_near_and_the_result_is_float32(name):
    network = make(name).eval()
    tokens = ragged(make_texts())
    encoder = TransformerEncoder(network)
    with torch.no_grad():
        expected = encoder(tokens)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = encoder(tokens)
    assert found.dtype == torch.float32
    assert 0 < (found - expected).norm() < 0.03 * expected.norm()


def test_gradients_flow_through_bfloat16():
    network = make("DistilBertModel").eval()
    texts, above = make_texts(), torch.randn(12, 24)
    encoder = TransformerEncoder(network)
    wanted = gradients(encoder(ragged(texts)), network, above)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradients(encoder(ragged(texts)), network, above)
    assert set(found) == set(wanted)
    for name, gradient in found.items():
        assert gradient.dtype == torch.float32
        assert (gradient - wanted[name]).norm() < 0.1 * wanted[name].norm() + 5e-2, name


@every_network
def test_what_is_saved_is_the_librarys_own_folder(name, tmp_path):
    network = make(name).eval()
    encoder = TransformerEncoder(network, pooling="first")
    options = encoder.save(tmp_path)
    loaded = TransformerEncoder.load(tmp_path, options).eval()
    assert packed_form(loaded.network) is not None
    tokens = ragged(make_texts())
    assert torch.equal(loaded(tokens), encoder(tokens))
    theirs = transformers.AutoModel.from_pretrained(tmp_path)
    expected = padded(theirs.eval(), make_texts(), "first")
    torch.testing.assert_close(encoder(tokens), expected, rtol=1e-4, atol=1e-4)


@every_network
def test_a_text_longer_than_the_positions_is_an_error(name):
    encoder = TransformerEncoder(make(name))
    assert encoder.max_positions == LONGEST
    with pytest.raises(UmpteenError, match=f"{LONGEST + 1} tokens.*positions for {LONGEST}"):
        encoder(ragged([[5, 6], [7] * (LONGEST + 1)]))


@pytest.mark.parametrize("case", ["another class", "DeBERTa", "another activation"])
def test_so_it_is_where_it_would_be_padded(case):
    encoder = TransformerEncoder(FOREIGN[case]())
    most = encoder.max_positions
    assert encoder(ragged([[5] * most])).shape == (1, 24)
    with pytest.raises(UmpteenError, match=f"{most + 1} tokens.*positions for {most}"):
        encoder(ragged([[5, 6], [7] * (most + 1)]))


@every_network
def test_the_padding_token_within_a_text_is_as_the_library_has_it(name):
    network = make(name).double().eval()
    texts = [[5, 1, 6], [7, 8], [1, 9, 1, 10]]
    found = TransformerEncoder(network, pad_id=1)(ragged(texts))
    torch.testing.assert_close(found, padded(network, texts, "mean"))


def small_t5():
    return transformers.T5Config(
        vocab_size=V, d_model=24, d_kv=8, num_layers=2, num_heads=3, d_ff=40, dropout_rate=0.1
    )


class OtherLinear(torch.nn.Linear):
    """As an adapter or a quantized layer would be: not what its weight alone says."""


def wrapped(network):
    layer = network.encoder.layer[1]
    other = OtherLinear(24, 40)
    other.load_state_dict(layer.intermediate.dense.state_dict())
    layer.intermediate.dense = other
    return network


FOREIGN = {
    "another class": lambda: transformers.AlbertModel(
        transformers.AlbertConfig(**{**SMALL, "embedding_size": 8, "max_position_embeddings": 50})
    ),
    "DeBERTa": lambda: transformers.DebertaV2Model(
        transformers.DebertaV2Config(
            **SMALL,
            max_position_embeddings=50,
            relative_attention=True,
            position_buckets=16,
            pos_att_type=["p2c", "c2p"],
            norm_rel_ebd="layer_norm",
            share_att_key=True,
        )
    ),
    "the encoder of a T5": lambda: transformers.T5EncoderModel(small_t5()),
    "tasks beside texts": lambda: make("ErnieModel", use_task_id=True),
    "another activation": lambda: make("BertModel", hidden_act="gelu_new"),
    "another activation of DistilBERT": lambda: make("DistilBertModel", activation="relu"),
    "a decoder": lambda: make("BertModel", is_decoder=True),
    "a wrapped layer": lambda: wrapped(make("BertModel")),
    "two dtypes": lambda: _two_dtypes(make("BertModel")),
}


def _two_dtypes(network):
    network.encoder.layer[0].output.LayerNorm.double()
    return network


def test_whether_a_network_is_packed_is_looked_at_anew_when_it_changes():
    encoder = TransformerEncoder(make("BertModel")).eval()
    assert encoder.layout(ragged(make_texts())) is not None
    wrapped(encoder.network)
    assert encoder.eval().layout(ragged(make_texts())) is None
    encoder = TransformerEncoder(make("BertModel"))
    assert encoder.layout(ragged(make_texts())) is not None
    _two_dtypes(encoder.network)
    assert encoder.to(torch.device("cpu")).layout(ragged(make_texts())) is None


@pytest.mark.parametrize("case", sorted(FOREIGN))
def test_what_is_not_in_the_table_or_unusual_is_not_packed(case):
    network = FOREIGN[case]()
    assert packed_form(network) is None
    assert TransformerEncoder(network).layout(ragged(make_texts())) is None
    if case in ("a decoder", "two dtypes"):
        return
    network = network.double().eval()
    texts = make_texts()
    for pad_id in (0, 4):  # which does not matter behind the mask
        found = TransformerEncoder(network, pad_id=pad_id)(ragged(texts))
        expected = padded(network, texts, "mean").to(found.dtype)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    above = torch.randn_like(expected)
    wanted = {n: g.double() for n, g in gradients(expected, network, above).items()}
    assert_equal(gradients(found, network, above), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnGpu:
    @every_form
    @every_pooling
    @pytest.mark.parametrize("longest", [40, 100, 300])
    def test_bfloat16_on_kernels_is_near_float64(self, name, pooling, longest):
        """Within 2% of the norm of vectors, 10% of each gradient's: bfloat16 all the way."""
        network = make(name, max_position_embeddings=302).cuda()
        rng = np.random.default_rng(0)
        texts = make_texts([*rng.integers(1, longest + 1, 50).tolist(), longest])
        exact = copy.deepcopy(network).double()
        expected = padded(exact, texts, pooling)
        above = torch.randn_like(expected)
        wanted = gradients(expected, exact, above)
        encoder = TransformerEncoder(network, pooling=pooling)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = encoder(ragged(texts))
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 0.02 * expected.norm()
        for key, gradient in gradients(found, network, above).items():
            right = wanted[key]
            assert (gradient - right).norm() < 0.1 * right.norm() + 5e-2, key

    def test_a_training_pass_waits_for_nothing_and_repeats(self):
        network = make("BertModel", **DROPOUTS).cuda().train()
        encoder = TransformerEncoder(network)
        tokens = ragged(make_texts())
        above = torch.randn(12, 24, device="cuda")
        results = []
        for _ in range(2):
            with chunk_randomness(3, 1, 0), torch.autocast("cuda", dtype=torch.bfloat16):
                torch.cuda.set_sync_debug_mode("error" if results else "default")
                try:
                    vectors = encoder(tokens)
                    vectors.backward(above)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            results.append([vectors.detach(), *gradients_now(network)])
        for one, other in zip(*results, strict=True):
            assert torch.equal(one, other)


def gradients_now(network):
    found = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    network.zero_grad()
    return found
