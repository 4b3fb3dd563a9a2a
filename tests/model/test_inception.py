"""Convolutions along the embedding axis, against their definition written out."""

import numpy as np
import torch

from umpteen.model.frugal.inception import InceptionEncoder
from umpteen.types import Ragged


def by_hand(encoder, vectors):
    """One text, in NumPy: attention among its words, windows over dimensions, maxima, the mix."""
    state = {name: value.detach().numpy() for name, value in encoder.state_dict().items()}
    read = vectors[: encoder.words]
    scores = (read @ state["attention_query.weight"].T) @ read.T / np.sqrt(encoder.dim)
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    words = read + weights @ read
    kept = []
    for number, width in enumerate(encoder.widths):
        filters = state[f"windows.{number}.weight"][:, : len(words)]  # (channels, words, width)
        starts = range(0, encoder.dim - width + 1, encoder.stride)
        view = np.stack([(filters * words[:, at : at + width]).sum((1, 2)) for at in starts], 1)
        view = np.maximum(view + state[f"windows.{number}.bias"][:, None], 0)
        groups = range(0, view.shape[1], encoder.pooled)
        kept.append(np.stack([view[:, at : at + encoder.pooled].max(1) for at in groups], 1))
    flat = np.concatenate([each.ravel() for each in kept])
    return vectors.mean(0) + state["mix.weight"] @ flat + state["mix.bias"]


def test_the_vector_of_a_text_is_that_of_the_definition():
    torch.manual_seed(3)
    encoder = InceptionEncoder(
        torch.randn(20, 11), words=4, channels=3, widths=(2, 5), stride=3, pooled=2
    ).double()
    torch.nn.init.normal_(encoder.mix.weight)
    encoder.eval()
    texts = [[3, 7, 1], [5], [2, 9, 4, 8, 11, 6]]  # the last is longer than what is read
    offsets = np.cumsum([0, *map(len, texts)])
    with torch.no_grad():
        found = encoder(Ragged(np.concatenate(texts).astype(np.int32), offsets)).numpy()
    table = encoder.table.detach().numpy()
    expected = np.stack([by_hand(encoder, table[text]) for text in texts])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
