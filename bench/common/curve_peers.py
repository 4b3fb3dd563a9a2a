"""Peers of the learning curve: each scores the labels that it has seen, from the same texts."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import LinearSVC

NEIGHBOURS = 10
INVERSE_RIDGE = 10.0
"""C of the logistic regression, of vectors of length one."""


def knn(used, held, which, vectors, wanted):
    """Nearest labelled texts by cosine, weighted by it."""
    targets, seen = _seen(used)
    k = min(NEIGHBOURS, len(vectors))
    near = NearestNeighbors(n_neighbors=k, metric="cosine").fit(vectors)
    distances, found = near.kneighbors(wanted)
    starts = np.arange(0, found.size + 1, k)
    votes = sp.csr_matrix(
        ((1.0 - distances).ravel(), found.ravel(), starts), (len(wanted), len(vectors))
    )
    return (votes @ targets).toarray(), seen


def linear_svc(used, held, which, vectors, wanted):
    """One-vs-rest LinearSVC over tf-idf of words (1-2) and characters (3-5)."""
    targets, seen = _seen(used)
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    chars = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 5))
    own = sp.hstack([part.fit_transform(used.texts(which)) for part in (words, chars)], "csr")
    asked = sp.hstack([part.transform(held.texts(which)) for part in (words, chars)], "csr")
    constant = np.asarray(targets.sum(axis=0)).ravel() == len(vectors)
    if constant.all():  # a single labelled text
        return np.ones((len(wanted), len(seen))), seen
    # Dense and wide: sparse int8 targets lose the labels beyond the 127th.
    right = targets[:, ~constant].toarray().astype(np.int64)
    fitted = OneVsRestClassifier(LinearSVC()).fit(own, right)
    found = np.asarray(fitted.decision_function(asked)).reshape(len(wanted), -1)
    scores = np.full((len(wanted), len(seen)), 1.0)
    scores[:, ~constant] = found
    return scores, seen


def logistic(used, held, which, vectors, wanted):
    """One-vs-rest logistic regression over encoder vectors: SetFit without contrastive tuning."""
    targets, seen = _seen(used)
    inputs, right = torch.from_numpy(vectors).float(), torch.from_numpy(targets.toarray()).float()
    weights = torch.zeros(vectors.shape[1], len(seen), requires_grad=True)
    bias = torch.full((len(seen),), -3.0, requires_grad=True)
    solver = torch.optim.LBFGS([weights, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        logits = torch.addmm(bias, inputs, weights)
        loss = torch.nn.functional.softplus(logits).sum() - (right * logits).sum()
        loss = loss + weights.square().sum() / (2 * INVERSE_RIDGE)
        loss.backward()
        return loss

    solver.step(closure)
    scores = torch.from_numpy(wanted).float() @ weights.detach() + bias.detach()
    return scores.numpy(), seen


def _seen(used):
    """Return (N, S) 0 and 1 of the labels of some texts, and their rows."""
    targets = used.filtered_targets()
    seen = np.unique(targets.indices)
    own = sp.csr_matrix(targets[:, seen], dtype=np.float32)
    own.data[:] = 1.0
    return own, seen


PEERS = {"kNN": knn, "LinearSVC": linear_svc, "logistic": logistic}
"""Name to a function of labelled texts, rows, what is read, and their vectors."""
