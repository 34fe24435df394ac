"""What may keep a fixed number of items near: policies that caches use, by their names.

They are here to be compared with, and no part of the product.
"""

from collections.abc import Callable, Mapping

from bench.lifecycle.policies.fifo import Fifo
from bench.lifecycle.policies.gdsf import Gdsf
from bench.lifecycle.policies.lfu import Lfu
from bench.lifecycle.policies.lru import Lru
from bench.lifecycle.policies.protocol import Policy
from bench.lifecycle.policies.s3fifo import S3Fifo
from bench.lifecycle.policies.tinylfu import TinyLfu

POLICIES: Mapping[str, Callable[[int], Policy]] = {
    "lru": Lru,
    "fifo": Fifo,
    "lfu": Lfu,
    "w-tinylfu": TinyLfu,
    "s3-fifo": S3Fifo,
    "gdsf": Gdsf,
}
