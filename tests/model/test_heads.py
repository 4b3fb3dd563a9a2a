import torch

from umpteen.model.heads import ClassifierHead, DualHead


def test_dual_vectors_have_unit_length_and_follow_the_formula():
    head = DualHead(6, 4, dropout=0.5).eval()
    encoded = torch.randn(5, 6) * 3
    expected = torch.tanh(encoded @ head.linear.weight.T + head.linear.bias)
    result = head(encoded)
    torch.testing.assert_close(result, expected / expected.norm(dim=1, keepdim=True))
    head.train()
    torch.testing.assert_close(head(encoded).norm(dim=1), torch.ones(5))


def test_classifier_vectors_are_linear_and_keep_their_length():
    head = ClassifierHead(6, 4, dropout=0.5).eval()
    encoded = torch.randn(5, 6)
    torch.testing.assert_close(head(2 * encoded), 2 * head(encoded))
    assert not torch.allclose(head(encoded).norm(dim=1), torch.ones(5), atol=1e-2)


def test_heads_start_with_orthogonal_rows():
    for head in (DualHead(6, 4, dropout=0.0), ClassifierHead(6, 4, dropout=0.0)):
        weight = head.linear.weight
        torch.testing.assert_close(weight @ weight.T, torch.eye(4))
        assert head.linear.bias.abs().sum() == 0
