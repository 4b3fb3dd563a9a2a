import numpy as np
import pytest
import torch

from umpteen.data import tokens_on_device
from umpteen.data.tokens import TokenStore
from umpteen.data.tokens_on_device import TokensOnDevice

CPU = torch.device("cpu")


def store(n, seed, dtype=np.uint16, most=2**16):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, n)
    ids = rng.integers(0, most, lengths.sum()).astype(dtype)
    return TokenStore(ids, np.concatenate([[0], np.cumsum(lengths)]))


@pytest.mark.parametrize("max_bytes", [1 << 20, 5])
@pytest.mark.parametrize("kinds", [(np.uint16, np.uint16), (np.uint16, np.int32), (np.int32,) * 2])
def test_tokens_equal_those_of_the_stores(kinds, max_bytes, monkeypatch):
    monkeypatch.setattr(tokens_on_device, "TOKENS_PER_COPY", 7)
    first, second = store(13, 1, kinds[0]), store(9, 2, kinds[1])
    tokens = TokensOnDevice([first, second], CPU, max_bytes=max_bytes)
    assert tokens.on_device == (max_bytes > 5)
    rows, others = np.array([4, 0, 12, 4]), np.array([8, 1])
    found = tokens.take([(0, rows), (1, others)])
    wanted = [first.take(rows), second.take(others)]
    ids = np.concatenate([part.ids for part in wanted])
    assert ids.max() > 2**15  # where the sign of int16 is
    assert found.ids.dtype == torch.int32
    assert found.ids.tolist() == ids.tolist()
    assert found.offsets.dtype == np.int64
    lengths = np.concatenate([np.diff(part.offsets) for part in wanted])
    assert np.diff(found.offsets).tolist() == lengths.tolist()
    assert found.offsets[0] == 0


def test_no_texts_have_no_tokens():
    tokens = TokensOnDevice([store(3, 1), store(3, 2)], CPU, max_bytes=1 << 20)
    found = tokens.take([(0, np.array([1])), (1, np.zeros(0, np.int64))])
    assert len(found) == 1
    empty = tokens.take([(0, np.zeros(0, np.int64))])
    assert len(empty) == len(empty.ids) == 0
