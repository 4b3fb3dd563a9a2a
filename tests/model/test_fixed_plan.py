"""Plans of fixed sizes: the real texts are as in any plan, and what fills up disturbs nobody."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.model.test_packed import (
    DEVICE,
    assert_equal,
    gradients,
    make,
    make_texts,
    needs_triton,
    padded,
    ragged,
)

from umpteen.compute.packing import pack, tiles
from umpteen.model.fixed_plan import LEAST_STEP, filled_up, places_in_one, rounded
from umpteen.model.packed import packed_form
from umpteen.model.packed_forward import encode_packed, plan_packed
from umpteen.model.packed_plan import make_plan
from umpteen.types import Ragged

CPU = torch.device("cpu")
some_lengths = st.lists(st.integers(1, 128), min_size=1, max_size=60)


def of_lengths(lengths, seed=0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Ragged(rng.integers(1, 10**6, offsets[-1]).astype(np.int32), offsets)


@given(n=st.integers(1, 10**7), steps=st.sampled_from([1, 4, 32]))
def test_numbers_are_rounded_up_by_little_and_to_few(n, steps):
    found = rounded(n, steps)
    assert n <= found < n * (1 + 1 / steps)
    assert rounded(found, steps) == found
    low = 1 << (n.bit_length() - 1)
    assert len({rounded(low + i * low // 64, steps) for i in range(64)}) <= steps + 1


@given(lengths=some_lengths, seed=st.integers(0, 5))
def test_the_real_texts_are_as_in_any_plan(lengths, seed):
    tokens = of_lengths(lengths, seed)
    fixed = make_plan(tokens, CPU, in_tiles=True, fixed=True)
    plan = make_plan(tokens, CPU, in_tiles=True)
    if fixed.sizes is None:  # many texts of a token or two
        assert len(plan.offsets) - 1 > len(plan.ids) // 3
        return
    n, m = len(plan.ids), len(plan.offsets) - 1
    for name in ("ids", "places", "texts"):
        assert torch.equal(getattr(fixed, name)[:n], getattr(plan, name))
    assert torch.equal(fixed.offsets[: m + 1], plan.offsets)
    back = torch.arange(m) if plan.back is None else plan.back
    assert torch.equal(fixed.back, back)
    assert list(fixed.tiles) == list(plan.tiles)
    for size, own in plan.tiles.items():
        assert torch.equal(fixed.tiles[size][: len(own)], own)
    assert fixed.longest >= plan.longest


@given(lengths=some_lengths)
def test_every_token_lies_in_one_tile_with_all_of_its_text(lengths):
    plan = make_plan(of_lengths(lengths), CPU, in_tiles=True, fixed=True)
    if plan.sizes is None:
        return
    assert plan.tiled == plan.sizes.tokens == len(plan.ids) == len(plan.texts)
    tile_of, count = np.full(plan.tiled, -1), 0
    for most, starts in plan.tiles.items():
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            assert 0 <= stop - start <= most
            assert (tile_of[start:stop] == -1).all()
            tile_of[start:stop] = count
            count += 1
    assert (tile_of >= 0).all()
    offsets = plan.offsets.numpy()
    assert (np.diff(offsets) >= 0).all()
    assert offsets[-1] == plan.tiled
    for text, (start, stop) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        assert (plan.texts[start:stop] == text).all()
        assert len(set(tile_of[start:stop])) <= 1


@given(lengths=some_lengths)
def test_sizes_tell_where_the_arrays_lie(lengths):
    plan = make_plan(of_lengths(lengths), CPU, in_tiles=True, fixed=True)
    if plan.sizes is None:
        return
    arrays = [plan.ids, plan.places, plan.texts, plan.offsets, *plan.tiles.values()]
    assert len(plan.flat) == places_in_one(plan.sizes.lengths)[-1]
    for found, array in zip(plan.sizes.parts(plan.flat.clone()), arrays, strict=True):
        assert torch.equal(found, array)
        assert array.data_ptr() % 4 == 0
        assert (array.storage_offset() * 4) % 128 == 0


def test_batches_of_a_kind_share_few_sizes():
    rng = np.random.default_rng(0)
    found = set()
    for seed in range(40):
        packed = pack(of_lengths(rng.integers(3, 33, rng.integers(2000, 2100)), seed))
        sizes, _ = filled_up(packed, tiles(packed.offsets)[0])
        found.add(sizes)
        assert sizes.tokens - len(packed.ids) <= max(LEAST_STEP, len(packed.ids) / 32)
    assert len(found) <= 8


def test_texts_that_fit_no_tile_and_ids_elsewhere_are_planned_as_ever():
    long = of_lengths([5, 7, 129])
    assert make_plan(long, CPU, in_tiles=True, fixed=True).sizes is None
    short = of_lengths([5, 7, 9])
    there = Ragged(torch.from_numpy(short.ids), short.offsets)
    assert make_plan(there, CPU, in_tiles=True, fixed=True).sizes is None
    assert make_plan(short, CPU, in_tiles=False, fixed=True).sizes is None
    assert filled_up(pack(of_lengths([1] * 500)), {64: np.array([0, 500])}) is None


@needs_triton
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("lengths", [[3, 5, 40], [2, 64, 17, 65, 80, 3]])
def test_the_kernels_on_a_fixed_plan_equal_padded_forward_and_backward(pooling, lengths):
    network = make("BertModel", max_position_embeddings=80).to(DEVICE)
    texts = make_texts(lengths)
    texts = [*texts, texts[1]]
    exact = copy.deepcopy(network).double()
    expected = padded(exact, texts, pooling)
    above = torch.randn_like(expected)
    wanted = gradients(expected, exact, above)
    form = packed_form(network)
    plan = plan_packed(form, ragged(texts), fused=True, fixed=True)
    assert plan.sizes is not None
    assert len(plan.ids) > sum(map(len, texts[:-1]))
    found = encode_packed(form, plan, pooling=pooling, training=True, fused=True)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    assert_equal(gradients(found, network, above), wanted, rtol=1e-3, atol=2e-3)
