"""Store of changes: labels added or retired and examples added after training.

``ChangeStore`` reads and writes ``RUN/changes.sqlite``; ``StoreState`` is one moment of it.
"""

from umpteen.store.change_store import ChangeStore
from umpteen.store.checks import NewLabel, text_digest
from umpteen.store.damage import Damage, DamageKind
from umpteen.store.reader import AuditEntry
from umpteen.store.state import StoredExamples, StoreState
from umpteen.store.vector_cache import VectorCache

__all__ = [
    "AuditEntry",
    "ChangeStore",
    "Damage",
    "DamageKind",
    "StoredExamples",
    "NewLabel",
    "StoreState",
    "VectorCache",
    "text_digest",
]
