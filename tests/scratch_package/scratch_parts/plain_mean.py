"""The mean of token vectors, without weights."""

from umpteen.model.frugal.bag import BagEncoder


class PlainMean(BagEncoder):
    """A bag of token vectors under a name of its own."""

    kind = "plain_mean"
