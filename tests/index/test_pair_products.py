"""Products of chosen pairs are entries of the whole product."""

import numpy as np
import pytest
import torch

from umpteen.index.pair_products import pair_products


@pytest.mark.parametrize("n_rows", [1, 3, 23, 61])
@pytest.mark.parametrize("width", [0, 1, 3, 4, 29, 70])
@pytest.mark.parametrize("n_queries", [1, 7])
def test_pairs_are_entries_of_the_product(n_rows, width, n_queries):
    rng = np.random.default_rng(n_rows * 100 + width)
    queries, vectors = (
        rng.standard_normal((n, 11)).astype(np.float32) for n in (n_queries, n_rows)
    )
    rows = rng.integers(0, n_rows, (n_queries, width))
    found = pair_products(*(torch.from_numpy(each) for each in (queries, vectors, rows)))
    wanted = np.take_along_axis(queries.astype(np.float64) @ vectors.T.astype(np.float64), rows, 1)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)


def test_padding_reads_row_0_and_repeated_rows_are_allowed():
    queries, vectors = torch.eye(3), torch.arange(12.0).reshape(4, 3)
    rows = torch.tensor([[-1, 2, 2], [3, -1, -1], [0, 0, 0]])
    wanted = [[0.0, 6.0, 6.0], [10.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    torch.testing.assert_close(pair_products(queries, vectors, rows), torch.tensor(wanted))


def test_vectors_that_are_not_contiguous_are_read_as_they_are():
    table = torch.randn(9, 10)
    queries, rows = torch.randn(4, 5), torch.randint(0, 9, (4, 6))
    found = pair_products(queries, table[:, 5:], rows)
    torch.testing.assert_close(found, (queries @ table[:, 5:].T).gather(1, rows))
