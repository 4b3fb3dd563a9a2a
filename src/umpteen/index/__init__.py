"""From vectors to the top-k label rows: the table of indexes. No names or texts of labels here."""

from __future__ import annotations

from umpteen.registry import Registry

INDEXES = Registry(
    "umpteen.indexes",
    {
        "exact": "umpteen.index.exact:ExactIndex",
        "faiss": "umpteen.index.faiss_index:FaissIndex",
        "ivfpq": "umpteen.index.ivfpq:IvfPqIndex",
    },
)
