"""From vectors to the top-k label rows: the table of indexes. No names or texts of labels here."""

from __future__ import annotations

INDEXES = {
    "exact": "umpteen.index.exact:ExactIndex",
    "faiss": "umpteen.index.faiss_index:FaissIndex",
}
