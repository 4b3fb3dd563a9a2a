"""Which stand-in for a missing classifier vector finds new labels best and costs others least.

    python bench/new_labels.py RUN DATA [--labels 2000] [--seed 0]

Labels of a trained run are treated as if they had been added afterwards: their classifier half is
replaced. A good stand-in keeps the recall of these labels near that of the trained vectors,
without putting them where they do not belong (their share of all answers stays the same) and
without taking places from the other labels. The text half stays as trained, so what is shown is
the effect of the classifier half alone.
"""

import argparse

import numpy as np
import torch
from torch.nn.functional import normalize
from umpteen.live.stand_in import NEIGHBOURS, SHARPNESS

import umpteen
from umpteen.index.exact import ExactIndex


def neighbours(dual, trained, rows):
    """As ``with_stand_ins``, but no label is its own neighbour, and nothing is made length 1."""
    itself = np.stack([np.arange(len(rows)), rows], axis=1)
    top = ExactIndex(dual.contiguous()).search(dual[rows], NEIGHBOURS, exclude=itself)
    weights = torch.from_numpy(SHARPNESS * top.scores).softmax(dim=1)
    return torch.einsum("an,and->ad", weights, trained[torch.from_numpy(top.rows)])


def variants(model, rows, texts):
    dim = model.model.dim
    vectors = torch.from_numpy(np.array(model.label_vectors("combined")))
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--labels", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", default=None)
    given = parser.parse_args()
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
    print("| stand-in | recall@5 of new | share of answers | recall@5 of others | P@1 of all |")
    print("|---|---|---|---|---|")
    for name, half in found.items():
        changed = vectors.clone()
        changed[torch.from_numpy(rows), model.model.dim :] = half
        top = ExactIndex.build(changed).search(queries, 5).rows
        hit = np.take_along_axis(np.asarray(truth.todense(), dtype=bool), top, 1)
        new = is_new[top]
        n_new = truth[:, is_new].nnz
        print(
            f"| {name} | {100 * (hit & new).sum() / n_new:.1f} | {100 * new.mean():.1f} | "
            f"{100 * (hit & ~new).sum() / (truth.nnz - n_new):.1f} | {100 * hit[:, 0].mean():.1f} |"
        )


if __name__ == "__main__":
    main()
