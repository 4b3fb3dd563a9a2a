"""umpteen as a scikit-learn estimator: ``UmpteenClassifier`` and scorers for rankings."""

from umpteen.sklearn.classifier import UmpteenClassifier
from umpteen.sklearn.scorers import RankingScorer, ranking_scorer

__all__ = ["RankingScorer", "UmpteenClassifier", "ranking_scorer"]
