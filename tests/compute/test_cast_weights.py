import torch

from umpteen.compute.cast_weights import cast_weights


def make_groups():
    torch.manual_seed(0)
    shapes = [[(3, 5), (2, 5), (4, 5)], [(7,)], [(2,), (3,)], [(1, 1)]]
    return [[torch.randn(s, requires_grad=True) for s in group] for group in shapes]


def test_each_group_is_its_parameters_one_below_the_other():
    groups = make_groups()
    for dtype in (torch.float32, torch.bfloat16):
        for found, group in zip(cast_weights(groups, dtype), groups, strict=True):
            assert torch.equal(found, torch.cat(group).to(dtype))


def test_gradients_come_back_in_the_parameters_dtype():
    groups = make_groups()
    parameters = [p for group in groups for p in group]
    above = [torch.randn_like(torch.cat(g)).bfloat16() for g in groups]
    found = torch.autograd.grad(cast_weights(groups, torch.bfloat16), parameters, above)
    plain = [torch.cat(group).to(torch.bfloat16) for group in groups]
    expected = torch.autograd.grad(plain, parameters, above)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)


def test_a_group_nobody_used_gets_no_gradient():
    groups = make_groups()
    first, *_ = cast_weights(groups, torch.float32)
    first.sum().backward()
    assert all(p.grad.eq(1).all() for p in groups[0])
    assert all(p.grad.eq(0).all() for group in groups[1:] for p in group)
