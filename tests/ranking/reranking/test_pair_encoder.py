"""The cross-encoder: joined tokens, packed as padded, saved and read back."""

import copy

import numpy as np
import pytest
import torch

from umpteen.errors import RunError
from umpteen.ranking.reranking.pair_encoder import PairEncoder

TEXTS = ["red apple", "a green pear and a plum", "blue"]
LABELS = ["apple", "red plum", ""]
PAIRS = (np.array([0, 1, 2, 0, 1]), np.array([1, 0, 1, 0, 1]))


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return PairEncoder.pretrained(str(tiny_bert)).eval()


def test_pairs_are_what_the_tokenizer_makes_of_two_texts(encoder):
    made = encoder.pairs(encoder.text_tokens(TEXTS), encoder.label_tokens(LABELS), *PAIRS)
    for place, (text, label) in enumerate(zip(*PAIRS, strict=True)):
        own = made.ids[made.offsets[place] : made.offsets[place + 1]]
        wanted = encoder.text_tokenizer.encode(TEXTS[text], LABELS[label]).ids
        np.testing.assert_array_equal(own, wanted)


def test_packed_equals_the_padded_network_in_float64(encoder):
    tokens = encoder.pairs(encoder.text_tokens(TEXTS), encoder.label_tokens(LABELS), *PAIRS)
    network = encoder.encoder.network
    with torch.no_grad():
        packed = encoder(tokens)
        grouped = encoder.scores(encoder.text_tokens(TEXTS), encoder.label_tokens(LABELS), *PAIRS)
        score = copy.deepcopy(encoder.score).double()
        slow = []
        for start, stop in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
            ids = torch.from_numpy(tokens.ids[start:stop].astype(np.int64))[None]
            slow.append(score(network.double()(input_ids=ids)[0][0].mean(dim=0))[0])
        network.float()
    torch.testing.assert_close(packed.double(), torch.stack(slow), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(grouped, packed)


def test_long_texts_leave_room_for_the_label(tiny_bert):
    small = PairEncoder.pretrained(str(tiny_bert), text_tokens=10_000)
    most = small.encoder.max_positions
    assert small.n_text_tokens + small.n_label_tokens <= most
    long = small.pairs(small.text_tokens(["red " * 5000]), small.label_tokens(["apple " * 5000]),
                       np.array([0]), np.array([0]))  # fmt: skip
    with torch.no_grad():
        assert small(long).shape == (1,)


def test_it_is_read_back(encoder, tmp_path):
    encoder.save(tmp_path)
    again = PairEncoder.load(tmp_path)
    tokens = encoder.pairs(encoder.text_tokens(TEXTS), encoder.label_tokens(LABELS), *PAIRS)
    with torch.no_grad():
        torch.testing.assert_close(again(tokens), encoder(tokens))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RunError, match="umpteen rerank"):
        PairEncoder.load(tmp_path)
