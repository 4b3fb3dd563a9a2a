"""Scores and positives to one number. Pure tensor code: no model, no rank, no label count."""

OBJECTIVES = {
    "bce": "umpteen.objectives.bce:BinaryCrossEntropy",
    "decoupled_softmax": "umpteen.objectives.decoupled_softmax:DecoupledSoftmax",
    "softmax": "umpteen.objectives.softmax:Softmax",
}

REDUCTIONS = {
    "pal": "umpteen.objectives.reductions:sum_of_positives",
    "pal-n": "umpteen.objectives.reductions:mean_of_positives",
}
