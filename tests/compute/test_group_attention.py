import numpy as np
import pytest
import torch
from tests.compute.plain_attention import plain_attention

from umpteen.compute.group_attention import Group, equal_groups, group_attention, padded_group

LENGTHS = [1, 1, 2, 3, 3, 3, 8, 13, 40, 200]


def padded_groups(lengths):
    """In two groups of any lengths."""
    offsets = np.cumsum([0, *lengths])
    groups = []
    for a, b in ((0, 6), (6, len(lengths))):
        tokens, count, longest, *arrays = padded_group(offsets[a : b + 1])
        groups.append(Group(tokens, count, longest, *map(torch.from_numpy, arrays)))
    return groups


@pytest.mark.parametrize("kind", ["equal", "padded"])
@pytest.mark.parametrize("biased", [False, True])
def test_it_equals_plain_attention_forward_and_backward(kind, biased):
    torch.manual_seed(0)
    heads, size = 3, 5
    groups = padded_groups(LENGTHS)
    if kind == "equal":
        groups = equal_groups(np.cumsum([0, *LENGTHS]))
        assert [g.count for g in groups] == [2, 1, 3, 1, 1, 1, 1]
    fused = torch.randn(sum(LENGTHS), 3 * heads * size, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(heads, 200, 200, dtype=torch.float64, requires_grad=True)
    options = {"bias": bias if biased else None}
    found = group_attention(*fused.chunk(3, dim=1), groups, heads=heads, **options)
    expected = plain_attention(fused, LENGTHS, heads, **options)
    torch.testing.assert_close(found, expected)
    leaves = (fused, bias) if biased else (fused,)
    above = torch.randn_like(found)
    for one, other in zip(torch.autograd.grad(found, leaves, above),
                          torch.autograd.grad(expected, leaves, above), strict=True):  # fmt: skip
        torch.testing.assert_close(one, other)
