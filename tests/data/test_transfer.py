import numpy as np
import pytest
import torch

from umpteen.data.transfer import to_device_together

without_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, without_gpu])]


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_of_any_kind_and_shape_arrive_as_they_are(device):
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-9, 9, 5),
        rng.random((3, 7)).astype(np.float32),
        np.zeros(0, np.int64),
        np.array([True, False, True]),
        rng.integers(0, 2**16, 3).astype(np.uint16),
        np.zeros((0, 2)),
        rng.random((4, 6))[::2, ::3],  # not in one piece
        np.arange(3, dtype=np.int32),
    ]
    found = to_device_together(arrays, torch.device(device))
    assert len(found) == len(arrays)
    for tensor, array in zip(found, arrays, strict=True):
        assert tensor.device.type == device
        assert tensor.shape == array.shape
        assert np.array_equal(tensor.cpu().numpy(), array)
        assert tensor.cpu().numpy().dtype == array.dtype


def test_all_arrays_share_one_copy():
    first, second = to_device_together([np.arange(3), np.arange(5.0)], torch.device("cpu"))
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_no_arrays_are_no_tensors():
    assert to_device_together([], torch.device("cpu")) == []
