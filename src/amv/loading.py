"""What the gate reads from files: its policy, and its calibration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from amv.checks import shown
from amv.errors import ConfigError, InvalidInput, PolicyError
from amv.guard.calibration import Calibration
from amv.guard.policy import Policy, parse

POLICY_BYTES_MAX = 1 << 20


def load_policy(policy: str | Path | Mapping[str, Any] | Policy) -> Policy:
    """Return a policy from a YAML file, from plain data, or as it is; raises PolicyError."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        return parse(dict(policy))
    if not isinstance(policy, str | Path):
        raise InvalidInput(f"a policy is a path or a mapping, got {shown(policy)}")
    try:
        text = Path(policy).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read the policy {str(policy)!r}: {error}") from error
    if len(text) > POLICY_BYTES_MAX:
        raise PolicyError(
            f"the policy {str(policy)!r} is longer than {POLICY_BYTES_MAX} characters"
        )
    return parse(_yaml(text, str(policy)))


def _yaml(text: str, path: str) -> object:
    """Return what YAML says; raises PolicyError."""
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise PolicyError(f"the policy {path!r} is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        # Such as a date that is none, or an integer of thousands of digits.
        raise PolicyError(f"the policy {path!r} is no YAML: {error}") from error


class _Loader(yaml.SafeLoader):
    """Loads YAML in which no mapping has a key twice, as the last one would win unseen."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return a mapping as it is written; raises YAMLError if a key stands in it twice."""
        node = super().compose_mapping_node(anchor)
        found = set()
        for key, _ in node.value:
            if (key.tag, str(key.value)) in found:
                raise yaml.composer.ComposerError(
                    None, None, f"the key {shown(key.value)} stands here twice", key.start_mark
                )
            found.add((key.tag, str(key.value)))
        return node


def load_calibration(calibration: str | Path | Calibration | None) -> Calibration:
    """Return a calibration from its file, or as it is; raises ConfigError."""
    if calibration is None or isinstance(calibration, Calibration):
        return calibration or Calibration()
    if not isinstance(calibration, str | Path):
        raise InvalidInput(f"a calibration is the path of its file, got {shown(calibration)}")
    try:
        return msgspec.json.decode(Path(calibration).read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError, InvalidInput) as error:
        raise ConfigError(f"can't use the calibration {str(calibration)!r}: {error}") from error
