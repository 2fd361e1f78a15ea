"""``pettingzoo:MODULE``: copies of one PettingZoo environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unity_bridge.simulators.multi_agent_envs.scene import MultiAgentScene
from unity_bridge.simulators.pettingzoo_envs.modules import find_environment


class PettingZooScene(MultiAgentScene):
    """N copies of the environment of a module: a MultiAgentScene of them.

    A mask in ``observation["action_mask"]`` or else in ``info["action_mask"]`` is respected where it fits.

    Raises:
        SceneError: there is no such environment, or as MultiAgentScene.
    """

    def __init__(
        self,
        module: str,
        copies: int = 1,
        kwargs: Mapping[str, Any] | None = None,
        *,
        aec: bool = False,
        with_state: bool | None = None,
        behaviors: Sequence[tuple[str, str]] = (),
        rendered: bool = False,
    ) -> None:
        """
        Args:
            module: as Python imports it.
            copies: how many there are, all in this process.
            kwargs: of the environment.
            aec: let agents act in turn even where they could all act at once.
            with_state: None shows it where there are several behaviors and no pictures.
            behaviors: see ``assign_roles``; those of PettingZoo's names if empty.
            rendered: whether render() will be called.
        """
        make = find_environment(module, aec=aec)
        drawing = {"render_mode": "rgb_array"} if rendered else {}
        super().__init__(
            f"pettingzoo:{module}",
            module.rpartition(".")[2],
            [make(**{**(drawing if i == 0 else {}), **(kwargs or {})}) for i in range(copies)],
            with_state=with_state,
            behaviors=behaviors,
            rendered=rendered,
        )
