import pytest
import torch

from umpteen.compute.threads import cpu_threads


def test_threads_are_given_back_also_after_an_error():
    before = torch.get_num_threads()
    with cpu_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(KeyError), cpu_threads(before + 1):
        raise KeyError
    assert torch.get_num_threads() == before
