"""Texts encoded in shares: every rank gets what one rank would have made."""

import json

import numpy as np
import pytest
import torch
from rank_children import on_ranks

from umpteen.compute.distributed.sharding import ONE_RANK
from umpteen.data.tokens import TokenStore
from umpteen.training.encode_on_ranks import TokenPart, encoded_on_ranks, vectors_for_first

LENGTHS = [3, 1, 4, 1, 5, 9, 2]
TEXTS = ["x" * n for n in LENGTHS]


def store(n=7):
    offsets = np.concatenate([[0], np.cumsum(LENGTHS[:n])])
    return TokenStore(np.arange(offsets[-1], dtype=np.int32), offsets)


def sums(tokens):
    """Stands for an encoder: the sum and the number of a text's tokens."""
    ragged = tokens.take(np.arange(len(tokens)))
    parts = np.split(np.asarray(ragged.ids), np.asarray(ragged.offsets)[1:-1])
    return torch.tensor([[float(part.sum()), float(len(part))] for part in parts])


def lengths(texts):
    """Stands for an encoder of texts."""
    return torch.tensor([[float(len(text))] for text in texts])


def in_shares(ranks, folder):
    """What a rank does: encode seven texts, then one; note what came of it and what it encoded."""
    encoded = []

    def encode_texts(texts):
        encoded.append(len(texts))
        return lengths(texts)

    def encode(tokens):
        encoded.append(len(tokens))
        return sums(tokens)

    found = [encoded_on_ranks(encode, store(n), ranks).tolist() for n in (7, 1)]
    for_first = [vectors_for_first(encode_texts, TEXTS[:n], ranks) for n in (7, 1)]
    noted = {"found": found, "encoded": encoded}
    noted["for first"] = [each.tolist() for each in for_first]
    (folder / f"{ranks.rank}.json").write_text(json.dumps(noted))


@pytest.mark.parametrize("world", [2, 3])
def test_shares_come_to_the_whole(world, tmp_path):
    assert on_ranks(__file__, "in_shares", world, tmp_path) == [0] * world
    noted = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world)]
    whole = [sums(store(n)).tolist() for n in (7, 1)]
    assert all(each["found"] == whole for each in noted)
    assert sum(each["encoded"][0] for each in noted) == 7
    assert max(each["encoded"][0] for each in noted) < 7
    assert all(each["encoded"][1] == 1 for each in noted)  # fewer texts than ranks
    assert noted[0]["for first"] == [lengths(TEXTS[:n]).tolist() for n in (7, 1)]
    assert all(each["for first"] == [[], []] for each in noted[1:])
    assert sum(each["encoded"][2] for each in noted) == 7
    assert max(each["encoded"][2] for each in noted) < 7
    assert [len(each["encoded"]) for each in noted] == [4] + [3] * (world - 1)


def test_one_rank_encodes_the_store_itself():
    tokens = store()
    assert encoded_on_ranks(lambda given: given is tokens, tokens, ONE_RANK)


def test_a_part_reads_as_the_texts_it_holds():
    part = TokenPart(store(), 2, 5)
    assert len(part) == 3
    assert part.lengths.tolist() == LENGTHS[2:5]
    assert np.asarray(part.take([1]).ids).tolist() == np.asarray(store().take([3]).ids).tolist()
