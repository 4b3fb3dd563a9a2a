"""From encoded texts to ranked labels with probabilities: retrieve, score, combine, calibrate."""

from __future__ import annotations

from umpteen.registry import Registry

RETRIEVERS = Registry(
    "umpteen.retrievers",
    {
        "dual": "umpteen.ranking.retrievers.vectors:Dual",
        "classifier": "umpteen.ranking.retrievers.vectors:Classifier",
        "knn": "umpteen.ranking.retrievers.knn:Knn",
        "lexical_ranker": "umpteen.ranking.retrievers.lexical:LexicalRetriever",
        "one_vs_rest": "umpteen.ranking.retrievers.lexical:OneVsRestRetriever",
        "lexical_knn": "umpteen.ranking.retrievers.knn:LexicalKnn",
        "character_ranker": "umpteen.ranking.retrievers.character_ranker:CharacterRanker",
        "backlinks": "umpteen.ranking.retrievers.backlinks:Backlinks",
        "names": "umpteen.ranking.retrievers.names:Names",
        "name_characters": "umpteen.ranking.retrievers.name_characters:NameCharacters",
    },
)
"""In this order they are fitted, loaded and laid out in the features of the ensemble."""
