"""Label texts as training queries: the table of ways to give them targets. One file each."""

from __future__ import annotations

AUGMENTATIONS = {
    "gandalf": "umpteen.data.augment.gandalf:label_targets",
    "glas": "umpteen.data.augment.glas:label_targets",
    "self": "umpteen.data.augment.self_annotation:label_targets",
    "walks": "umpteen.data.augment.walks:label_targets",
}
"""Name to a function like ``graph.LabelTargets``."""

SUMMARIES = {
    "gandalf": "targets are how often another label comes with the label, above delta",
    "glas": "the same made symmetric and put through a sigmoid",
    "self": "a label's text has that label alone",
    "walks": "visits of random walks with restart on the query-label graph, above delta",
}
