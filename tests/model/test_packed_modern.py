"""ModernBERT on packed tokens equals its own padded forward pass, forward and backward."""

import numpy as np
import pytest
import torch

from umpteen.model.packed_modern import ModernForm, modern_form
from umpteen.model.transformer import TransformerEncoder
from umpteen.types import Ragged

LENGTHS = [1, 3, 3, 4, 5, 6, 11, 23, 23]


@pytest.fixture(scope="module")
def network():
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(3)
    config = ModernBertConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=4, num_attention_heads=3,
        intermediate_size=20, local_attention=8, global_attn_every_n_layers=2, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    found = ModernBertModel(config).double()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.2)
    return found


def texts(seed=0):
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    ids = np.random.default_rng(seed).integers(3, 60, offsets[-1]).astype(np.int32)
    ids[offsets[1] : offsets[2]] = ids[offsets[2] : offsets[3]]  # two equal texts
    return Ragged(ids, offsets)


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_packed_equals_padded(network, pooling):
    encoder = TransformerEncoder(network, pooling=pooling)
    form = encoder._form()
    assert isinstance(form, ModernForm)
    assert form.window + 1 < max(LENGTHS)  # so that windows differ from whole texts
    tokens, found = texts(), []
    for forward in (encoder.forward, encoder._padded):
        encoder.zero_grad()
        vectors = forward(tokens)
        (vectors * torch.arange(vectors.numel()).view_as(vectors)).sum().backward()
        found.append((vectors.detach(), [p.grad.clone() for p in network.parameters()]))
    (ours, own), (theirs, others) = found
    # The library rotates in float32 whatever the weights are.
    assert torch.allclose(ours, theirs, atol=1e-5)
    for one, two in zip(own, others, strict=True):
        assert torch.allclose(one, two, rtol=1e-3, atol=1e-4 * float(two.abs().max() + 1))


def test_other_networks_are_left_alone(tiny_bert):
    from umpteen.model.pretrained import load_network

    assert modern_form(load_network(str(tiny_bert))) is None
