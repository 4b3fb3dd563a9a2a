"""Growing .npy files: what NumPy itself reads back, and what is refused."""

import numpy as np
import pytest

from umpteen.data.arrays_on_disk import ArrayWriter, open_array
from umpteen.errors import DataError


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("lengths", [[], [0], [1], [3, 0, 1000, 7]])
def test_pieces_are_read_back_as_one_array(tmp_path, dtype, lengths):
    pieces = [np.arange(n).astype(dtype) for n in lengths]
    path = tmp_path / "values.npy"
    with ArrayWriter(path, np.dtype(dtype)) as writer:
        for piece in pieces:
            writer.append(piece)
    wanted = np.concatenate([np.empty(0, dtype), *pieces])
    for array in (np.load(path), open_array(path, writer.about)):
        assert array.dtype == dtype
        assert np.array_equal(array, wanted)


def test_other_dtype_is_refused(tmp_path):
    with (
        ArrayWriter(tmp_path / "values.npy", np.dtype(np.int32)) as writer,
        pytest.raises(TypeError, match="expected int32, got int64"),
    ):
        writer.append(np.arange(3))


def test_other_length_than_written_is_refused(tmp_path):
    path = tmp_path / "values.npy"
    with ArrayWriter(path, np.dtype(np.int64)) as writer:
        writer.append(np.arange(3))
    with pytest.raises(DataError, match="expected 4 values"):
        open_array(path, {**writer.about, "length": 4})
    with pytest.raises(DataError, match="damaged"):
        open_array(path, {**writer.about, "sha256": "0"})
