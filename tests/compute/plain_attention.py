"""Attention of packed texts written out, text by text: what the fast ones must equal."""

import torch


def plain_attention(fused, lengths, heads, *, kept=None, rate=0.0, bias=None):
    """(N, 3 * heads * size) to (N, heads * size); kept[text] is (heads, T, T) bool."""
    parts = []
    for i, part in enumerate(fused.split(lengths)):
        queries, keys, values = part.view(len(part), 3, heads, -1).permute(1, 2, 0, 3)
        scores = queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5
        if bias is not None:
            scores = scores + bias[:, : len(part), : len(part)]
        shares = scores.softmax(dim=-1)
        if kept is not None:
            shares = shares * kept[i] / (1 - rate)
        parts.append((shares @ values).transpose(0, 1).reshape(len(part), -1))
    return torch.cat(parts)
