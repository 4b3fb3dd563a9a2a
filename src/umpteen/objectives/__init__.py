"""Scores and positives to one number. Pure tensor code: no model, no rank, no label count."""

from __future__ import annotations

from umpteen.registry import Registry

OBJECTIVES = Registry(
    "umpteen.objectives",
    {
        "bce": "umpteen.objectives.bce:BinaryCrossEntropy",
        "decoupled_softmax": "umpteen.objectives.decoupled_softmax:DecoupledSoftmax",
        "prob_contrastive": "umpteen.objectives.prob_contrastive:ProbabilisticContrastive",
        "soft_top_k": "umpteen.objectives.soft_top_k:SoftTopK",
        "softmax": "umpteen.objectives.softmax:Softmax",
        "triplet": "umpteen.objectives.triplet:Triplet",
    },
)

REDUCTIONS = {
    "k-sample": "umpteen.objectives.reductions:some_of_positives",
    "pal": "umpteen.objectives.reductions:sum_of_positives",
    "pal-n": "umpteen.objectives.reductions:mean_of_positives",
    "pol": "umpteen.objectives.reductions:one_of_positives",
    # "Pick some labels" is the mean over the positives in the pool, and no reduction sees others.
    "psl": "umpteen.objectives.reductions:mean_of_positives",
}
