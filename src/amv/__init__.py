"""AMV: the memory of a long-lived LLM agent, adaptive and verified.

>>> import amv
>>> with amv.Memory.open(":memory:", embedder="hashing") as memory:
...     item = memory.add("Alice moved to Rome", namespace=("alice",))
...     memory.search("where is Alice", namespace=("alice",)).hits[0].item.content
'Alice moved to Rome'
"""

from amv.config import Settings
from amv.errors import (
    ActionAbstained,
    AmvError,
    ConfigError,
    Conflict,
    DimensionMismatch,
    EmbedderChanged,
    EmbedderError,
    InvalidInput,
    InvalidNamespace,
    ItemNotFound,
    OutcomeUnknown,
    PermitRefused,
    PolicyError,
    RepairNeeded,
    SchemaMismatch,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from amv.gate import Guard
from amv.guard.actions import Action
from amv.guard.decision import Decision
from amv.guard.state import NOT_FOUND
from amv.memory.item import Claim, Item, Status
from amv.memory.ports import Embedder
from amv.memory.results import (
    Context,
    ForgetReceipt,
    HistoryEntry,
    Hit,
    Page,
    Scanned,
    SearchResult,
    Stats,
    SweepReport,
)
from amv.memory.settings import Budget, CellSettings, MemorySettings
from amv.memory.tiers import Tier
from amv.memory.value import PRESETS, ValueModel
from amv.wiring import Memory

__version__ = "0.1.0"

__all__ = [
    "NOT_FOUND",
    "PRESETS",
    "Action",
    "ActionAbstained",
    "AmvError",
    "Budget",
    "CellSettings",
    "Claim",
    "ConfigError",
    "Conflict",
    "Context",
    "Decision",
    "DimensionMismatch",
    "Embedder",
    "EmbedderChanged",
    "EmbedderError",
    "ForgetReceipt",
    "Guard",
    "HistoryEntry",
    "Hit",
    "InvalidInput",
    "InvalidNamespace",
    "Item",
    "ItemNotFound",
    "Memory",
    "MemorySettings",
    "OutcomeUnknown",
    "Page",
    "PermitRefused",
    "PolicyError",
    "RepairNeeded",
    "Scanned",
    "SchemaMismatch",
    "SearchResult",
    "Settings",
    "Stats",
    "Status",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "SweepReport",
    "Tier",
    "ValueModel",
    "__version__",
]
