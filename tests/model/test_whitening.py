"""Centering and whitening of vectors without labels."""

import torch

from umpteen.model.heads import DualHead
from umpteen.model.whitening import Whitening


def vectors(n, *, offset, seed):
    """Vectors in which one direction has most of the variance."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.ones(8)
    spread[0] = 20.0
    return torch.randn(n, 8, generator=generator) * spread + offset


def projected(whitening, x, *, for_labels=False):
    head = DualHead(8, 8, dropout=0.0)
    whitening.set_(head.linear, for_labels=for_labels)
    with torch.no_grad():
        return head(x)


def test_both_sides_are_centered_and_directions_are_balanced():
    texts, labels = vectors(4000, offset=30.0, seed=1), vectors(3000, offset=-10.0, seed=2)
    whitening = Whitening.fit(labels, texts)
    for x, side in ((texts, False), (labels, True)):
        made = projected(whitening, x, for_labels=side)
        assert made.mean(dim=0).abs().max() < 0.05
        ratio = made.var(dim=0)[0] / made.var(dim=0)[1:].mean()
        assert ratio < 100  # of 400 before


def test_hubs_are_removed():
    texts, labels = vectors(500, offset=30.0, seed=3), vectors(40, offset=-10.0, seed=4)
    plain = torch.nn.functional.normalize(texts) @ torch.nn.functional.normalize(labels).T
    whitening = Whitening.fit(labels, texts)
    scores = projected(whitening, texts) @ projected(whitening, labels, for_labels=True).T

    def largest_share(found):
        return torch.bincount(found.argmax(dim=1), minlength=40).max().item() / len(found)

    assert largest_share(plain) > 0.3
    assert largest_share(scores) < 0.5 * largest_share(plain)


def test_few_or_equal_vectors_do_no_harm():
    for labels in (torch.ones(1, 8), torch.ones(5, 8), torch.eye(8)[:2]):
        for texts in (None, torch.ones(1, 8)):
            whitening = Whitening.fit(labels, texts)
            made = projected(whitening, labels, for_labels=True)
            assert torch.isfinite(made).all()
