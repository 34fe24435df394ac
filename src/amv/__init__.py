"""AMV: the memory of a long-lived LLM agent, adaptive and verified.

>>> import amv
>>> with amv.Memory.open(":memory:", embedder="hashing") as memory:
...     item = memory.add("Alice moved to Rome", namespace=("alice",))
...     memory.search("where is Alice", namespace=("alice",)).hits[0].item.content
'Alice moved to Rome'
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amv.config import Settings
    from amv.embedders.endpoint import Endpoint
    from amv.embedders.remote import RemoteEmbedder
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
        MemoryChanged,
        OutcomeUnknown,
        PermitRefused,
        PolicyChanged,
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
    from amv.imports.running import ImportReport, import_file
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
    "Endpoint",
    "ForgetReceipt",
    "Guard",
    "HistoryEntry",
    "Hit",
    "ImportReport",
    "InvalidInput",
    "InvalidNamespace",
    "Item",
    "ItemNotFound",
    "Memory",
    "MemoryChanged",
    "MemorySettings",
    "OutcomeUnknown",
    "Page",
    "PermitRefused",
    "PolicyChanged",
    "PolicyError",
    "RemoteEmbedder",
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
    "import_file",
]

_HOMES = {
    "amv.config": "Settings",
    "amv.embedders.endpoint": "Endpoint",
    "amv.embedders.remote": "RemoteEmbedder",
    "amv.errors": (
        "ActionAbstained AmvError ConfigError Conflict DimensionMismatch EmbedderChanged "
        "EmbedderError InvalidInput InvalidNamespace ItemNotFound MemoryChanged "
        "OutcomeUnknown PermitRefused PolicyChanged PolicyError RepairNeeded "
        "SchemaMismatch StoreClosed StoreDamaged StoreError StoreUnavailable"
    ),
    "amv.gate": "Guard",
    "amv.guard.actions": "Action",
    "amv.guard.decision": "Decision",
    "amv.guard.state": "NOT_FOUND",
    "amv.imports.running": "ImportReport import_file",
    "amv.memory.item": "Claim Item Status",
    "amv.memory.ports": "Embedder",
    "amv.memory.results": (
        "Context ForgetReceipt HistoryEntry Hit Page Scanned SearchResult Stats SweepReport"
    ),
    "amv.memory.settings": "Budget CellSettings MemorySettings",
    "amv.memory.tiers": "Tier",
    "amv.memory.value": "PRESETS ValueModel",
    "amv.wiring": "Memory",
}
"""Where each name comes from.  It is imported once it is used, since all of it takes long.

So is each module of the package, `amv.config` for instance.
"""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    is_module = name.isidentifier() and not name.startswith("_")
    if is_module and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
