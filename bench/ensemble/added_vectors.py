"""Which classifier vector for an added label finds it best and costs other labels least.

    python -m bench ensemble added-vectors RUN DATA [--labels 2000] [--seed 0]

Labels of a trained run are treated as if they had been added afterwards: their classifier half is
replaced. A good replacement keeps the recall of these labels near that of the trained vectors,
without putting them where they do not belong (their share of all answers stays the same) and
without taking places from the other labels. The text half stays as trained, so what is shown is
the effect of the classifier half alone.
"""

import argparse

import numpy as np
import torch
from torch.nn.functional import normalize

import umpteen
from bench.common import options
from bench.common.tables import Table
from umpteen.index.exact import ExactIndex
from umpteen.ranking.added_labels import NEIGHBOURS, SHARPNESS


def neighbours(dual, trained, rows):
    """As ``added_label_vectors``, but no label is its own neighbour; lengths are kept."""
    itself = np.stack([np.arange(len(rows)), rows], axis=1)
    top = ExactIndex(dual.contiguous()).search(dual[rows], NEIGHBOURS, exclude=itself)
    weights = torch.from_numpy(SHARPNESS * top.scores).softmax(dim=1)
    return torch.einsum("an,and->ad", weights, trained[torch.from_numpy(top.rows)])


def variants(model, rows, texts):
    dim = model.model.dim
    vectors = torch.from_numpy(np.array(model.label_vectors.numpy("combined")))
    dual, trained = vectors[:, :dim], vectors[:, dim:]
    own = model.vectors(texts)[:, dim:]
    sample = torch.randperm(len(dual), generator=torch.Generator().manual_seed(1))[:2000]
    sample_own = model.vectors(
        [model.labels.encoder_texts(model.text_config.text)[i] for i in sample]
    )
    share = float((sample_own[:, dim:] * trained[sample]).sum(1).mean())
    zero = torch.zeros_like(own)
    found = {"trained": trained[rows], "nothing": zero, "text": own, "text, scaled": share * own}
    found["neighbours"] = neighbours(dual, trained, rows)
    found["neighbours, length 1"] = normalize(found["neighbours"], dim=1)
    return vectors, found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_data(parser)
    parser.add_argument("--labels", type=int, default=2000)
    options.add_seed(parser)


def main(given: argparse.Namespace) -> None:
    model = umpteen.Predictor.load(given.run, device="cpu").as_trained()
    part = umpteen.load_dataset(given.data)["test"]
    truth = part.targets.tocsr()
    counts = np.asarray((truth > 0).sum(axis=0)).ravel()
    rng = np.random.default_rng(given.seed)
    rows = np.sort(rng.permutation(np.flatnonzero(counts))[: given.labels])
    is_new = np.zeros(len(counts), bool)
    is_new[rows] = True
    texts = [model.labels.encoder_texts(model.text_config.text)[row] for row in rows]
    vectors, found = variants(model, rows, texts)
    some = np.sort(rng.permutation(truth.shape[0])[:8000])
    truth = truth[some]
    queries = model.vectors([part.texts(model.text_config.text)[i] for i in some])
    print(
        f"{len(rows)} of {len(counts)} labels as new, {len(some)} queries, {NEIGHBOURS} neighbours"
    )
    columns = ["vector", "recall@5 of new", "share of answers", "recall@5 of others", "P@1 of all"]
    table = Table(columns, 1)
    for name, half in found.items():
        changed = vectors.clone()
        changed[torch.from_numpy(rows), model.model.dim :] = half
        top = ExactIndex.build(changed).search(queries, 5).rows
        hit = np.take_along_axis(np.asarray(truth.todense(), dtype=bool), top, 1)
        new = is_new[top]
        n_new = truth[:, is_new].nnz
        others = (hit & ~new).sum() / (truth.nnz - n_new)
        shares = ((hit & new).sum() / n_new, new.mean(), others, hit[:, 0].mean())
        table.add(name, *(100 * float(value) for value in shares))
