"""Where a measurement was taken: what a reader needs to compare it with another."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = Path(__file__).parent / ".cache"
RESULTS = Path(__file__).parent / "results"

_PACKAGES = ("apsw", "numkong", "numpy", "onnxruntime", "usearch")


def describe() -> dict[str, object]:
    """Return machine, versions and revision, to be written into every raw row."""
    return {
        "git": _git("rev-parse", "HEAD"),
        "git_is_dirty": bool(_git("status", "--porcelain", "--", "src", "bench/*.py")),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _PACKAGES},
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE"),
    }


def load_1m() -> float:
    """Return the load average of the last minute: others on the machine, for one."""
    return round(os.getloadavg()[0], 2)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
