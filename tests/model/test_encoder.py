import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from umpteen.model.encoder import length_groups, pad, to_device
from umpteen.types import Ragged


@given(st.lists(st.integers(1, 40), max_size=60), st.sampled_from([0.0, 0.15, 0.5]))
def test_length_groups_cover_everything_in_order_in_at_most_six(lengths, waste):
    ascending = np.sort(np.array(lengths, np.int64))
    groups = list(length_groups(ascending, waste=waste))
    covered = [i for group in groups for i in range(group.start, group.stop)]
    assert covered == list(range(len(lengths)))
    assert len(groups) <= 6
    assert all(group.stop > group.start for group in groups)
    for group in groups[1:]:  # the first takes what is left when there are six
        block = ascending[group]
        assert 1 - block.sum() / (len(block) * block[-1]) <= waste + 1e-12


def test_equal_lengths_are_one_group_and_two_lengths_are_two():
    assert list(length_groups(np.full(9, 5))) == [slice(0, 9)]
    assert list(length_groups(np.array([1] * 20 + [30] * 20), waste=0.0)) == [
        slice(0, 20),
        slice(20, 40),
    ]


def test_pad_puts_the_padding_behind_and_masks_it():
    tokens = Ragged(np.array([4, 5, 6, 7, 8, 9], np.int32), np.array([0, 1, 4, 6]))
    ids, mask = pad(tokens, np.array([2, 0, 1]), pad_id=3)
    assert ids.tolist() == [[8, 9, 3], [4, 3, 3], [5, 6, 7]]
    assert mask.tolist() == [[True, True, False], [True, False, False], [True] * 3]
    assert ids.dtype == np.int64


def test_tokens_on_a_device_are_padded_there_to_the_same_matrix():
    ids, offsets = np.array([5, 6, 7, 8, 9, 4]), np.array([0, 1, 4, 6])
    rows = np.array([2, 0, 1])
    expected, expected_mask = pad(Ragged(ids, offsets), rows, pad_id=3)
    found, mask = pad(Ragged(torch.from_numpy(ids.astype(np.int32)), offsets), rows, pad_id=3)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.int64
    assert found.tolist() == expected.tolist() == [[9, 4, 3], [5, 3, 3], [6, 7, 8]]
    assert np.array_equal(mask, expected_mask)


def test_a_tensor_that_is_on_the_device_stays_itself():
    tensor = torch.arange(3)
    assert to_device(tensor, torch.device("cpu")) is tensor
    assert to_device(np.arange(3), torch.device("cpu")).tolist() == [0, 1, 2]
