"""Products of pairs equal those of the dense product, whatever rows are asked for."""

import pytest
import torch

from umpteen.index.pair_products import pair_products


@pytest.mark.parametrize(
    ("n_queries", "n_vectors", "width"), [(3, 41, 10), (1, 7, 7), (3, 41, 43), (5, 2, 9), (4, 1, 1)]
)
def test_pairs_equal_the_dense_product(n_queries, n_vectors, width):
    draw = torch.Generator().manual_seed(n_vectors)
    queries = torch.randn(n_queries, 13, generator=draw)
    vectors = torch.randn(n_vectors, 13, generator=draw)
    rows = torch.randint(-1, n_vectors, (n_queries, width), generator=draw)
    wanted = torch.gather(queries.double() @ vectors.double().T, 1, rows.clamp(min=0))
    found = pair_products(queries, vectors, rows)
    torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=0)


def test_no_pairs():
    rows = torch.zeros(3, 0, dtype=torch.int64)
    assert pair_products(torch.ones(3, 2), torch.ones(4, 2), rows).shape == (3, 0)
