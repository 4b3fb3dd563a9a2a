"""A linear layer with its weights in blocks equals the plain one."""

import pytest
import torch
from torch.nn.functional import gelu, linear

from umpteen.compute import prepacked_linear
from umpteen.compute.prepacked_linear import PrepackedLinear

SHAPES = [(1, 1, 1), (3, 17, 5), (19, 33, 130), (40, 64, 7)]
"""Rows, inputs, outputs."""


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("blocks", [True, False])
def test_it_equals_the_plain_product(rows, inputs, outputs, blocks, monkeypatch):
    if not blocks:
        monkeypatch.setattr(prepacked_linear, "blocks_available", lambda: False)
    torch.manual_seed(rows)
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    ready = PrepackedLinear.of(weight, bias)
    expected = linear(x.double(), weight.double(), bias.double())
    with torch.no_grad():
        torch.testing.assert_close(ready(x).double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            ready(x, gelu=True).double(), gelu(expected), rtol=1e-5, atol=1e-5
        )


def test_rows_that_are_part_of_a_wider_matrix_are_read_right():
    torch.manual_seed(1)
    wide, weight, bias = torch.randn(6, 30), torch.randn(4, 10), torch.randn(4)
    part = wide[:, 10:20]
    with torch.no_grad():
        found = PrepackedLinear.of(weight, bias)(part)
    torch.testing.assert_close(found, linear(part, weight, bias), rtol=1e-5, atol=1e-5)
