"""Products of chosen pairs equal the entries of the whole product."""

import numpy as np
import pytest
import torch

from umpteen.index import pair_products as module
from umpteen.index.pair_products import pair_products

NEEDS_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_GPU)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("n_queries", "width", "n_rows", "dim"),
    [(1, 1, 1, 1), (7, 11, 23, 5), (7, 4, 3, 5), (3, 70, 61, 11), (1, 29, 1, 5)],
)
@pytest.mark.parametrize("gather_bytes", [1, 1 << 20])
def test_entries_are_those_of_the_product(
    n_queries, width, n_rows, dim, gather_bytes, device, monkeypatch
):
    monkeypatch.setattr(module, "GATHER_BYTES", gather_bytes)
    rng = np.random.default_rng(3)
    queries = rng.normal(size=(n_queries, dim))
    vectors = rng.normal(size=(n_rows, dim))
    rows = rng.integers(-1, n_rows, (n_queries, width))  # unsorted, with repeats
    wanted = np.take_along_axis(queries @ vectors.T, np.maximum(rows, 0), 1)
    found = pair_products(
        torch.from_numpy(queries).float().to(device),
        torch.from_numpy(vectors).float().to(device),
        torch.from_numpy(rows).to(device),
    )
    np.testing.assert_allclose(found.cpu().numpy(), wanted, atol=1e-5)


def test_no_pairs_and_no_queries():
    vectors = torch.ones(3, 2)
    assert pair_products(torch.ones(4, 2), vectors, torch.zeros(4, 0, dtype=torch.long)).shape == (
        4,
        0,
    )
    assert pair_products(torch.ones(0, 2), vectors, torch.zeros(0, 5, dtype=torch.long)).shape == (
        0,
        5,
    )


def test_columns_of_a_wider_table_are_read():
    wide = torch.arange(12.0).view(3, 4)
    rows = torch.tensor([[2, 0]])
    found = pair_products(torch.tensor([[1.0, 10.0]]), wide[:, 1:3], rows)
    assert found.tolist() == [[9.0 + 100.0, 1.0 + 20.0]]
