"""Suggested settings as YAML, with the reasons as comments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from trainer_service.commands.suggest.features import BehaviorFeatures, EnvironmentFeatures
from trainer_service.commands.suggest.rules import Choice, heterogeneous_groups, suggest_settings

_COMMENT_COLUMN = 44


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Settings for one environment."""

    features: EnvironmentFeatures

    env_settings: Mapping[str, Any]
    """The environment and its arguments, as in a file."""

    behaviors: Mapping[str, Sequence[Choice]]
    """The choices by behavior."""

    groups: Mapping[str, Mapping[str, int]]
    """The groups of several behaviors, as under ``teams``."""

    def lines(self) -> Iterator[str]:
        """Each choice with its reason, in a line."""
        for name, choices in self.behaviors.items():
            for choice in choices:
                yield f"{name}: {choice.key.rpartition('.')[2]}: {_scalar(choice.value)} ({choice.reason})"

    def to_yaml(self) -> str:
        """A configuration with the reasons as comments."""
        text = "\n".join(
            [f"# Suggested after {self.features.messages} messages of random actions.", *self._facts(), ""]
        )
        if self.env_settings:
            text += yaml.safe_dump({"env_settings": dict(self.env_settings)}, sort_keys=False)
        if self.groups:
            text += yaml.safe_dump(
                {"teams": {name: dict(team) for name, team in self.groups.items()}}, sort_keys=False
            )
        lines = ["behaviors:"]
        for name, choices in self.behaviors.items():
            lines += [f"  {_scalar(name)}:", *_nested(_tree(choices), 4)]
        return text + "\n".join(lines) + "\n"

    def _facts(self) -> Iterator[str]:
        for behavior in self.features.behaviors:
            yield f"# {behavior.name}: {_facts_of(behavior)}"


def suggestion_of(features: EnvironmentFeatures, env_settings: Mapping[str, Any]) -> Suggestion:
    """The suggestion for an environment with these features."""
    return Suggestion(features, env_settings, suggest_settings(features), heterogeneous_groups(features))


def _facts_of(behavior: BehaviorFeatures) -> str:
    ends = f"{behavior.episodes} episodes ended" if behavior.episodes else "no episode ended"
    groups = f" in groups of up to {behavior.group_size}" if behavior.group_size else ""
    return (
        f"{behavior.agents} agents{groups}; {ends}, {behavior.length:.3g} decisions long, "
        f"{100 * behavior.truncated:.0f} % by truncation; rewards of size {behavior.reward_scale:.2g}, "
        f"{_percent(behavior.density)} % of them unusual"
    )


def _percent(share: float) -> str:
    """A share in percent: rare events keep their digits."""
    return f"{100 * share:.0f}" if share > 0.1 else f"{100 * share:.2g}"


def _tree(choices: Sequence[Choice]) -> dict[str, Any]:
    """The choices as nested mappings."""
    tree: dict[str, Any] = {}
    for choice in choices:
        *path, key = choice.key.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[key] = choice
    return tree


def _nested(tree: Mapping[str, Any], indent: int) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Choice):
            line = f"{' ' * indent}{key}: {_scalar(value.value)}"
            yield f"{line:{_COMMENT_COLUMN}}  # {value.reason}"
        else:
            yield f"{' ' * indent}{key}:"
            yield from _nested(value, indent + 2)


def _scalar(value: Any) -> str:
    """A value as YAML writes it in a line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()
