"""A short play of an environment with random actions, to learn its features."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from trainer_service.commands.suggest.features import EnvironmentFeatures
from trainer_service.commands.suggest.tally import Tally
from trainer_service.config import RunOptions
from trainer_service.errors import UserError
from trainer_service.running.collection.launching import bridge_settings
from trainer_service.running.collection.router import parse_behavior_id
from unity_bridge.errors import BridgeError
from unity_bridge.server.bridge import Bridge, Departure, Tick
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch, StepBatch

MOST_MESSAGES = 2000
"""Messages after which the probe ends."""

MOST_SECONDS = 15
"""Seconds of a slow environment after which the probe ends at the next power of two of messages.

Other than a number of seconds, these powers hardly depend on the machine, so neither do the choices.
"""

LEAST_MESSAGES, ENOUGH_EPISODES = 400, 200
"""The probe ends earlier after so many messages, if each behavior has had so many episodes."""

_logger = logging.getLogger(__name__)


def probe(options: RunOptions, start: Callable[[Bridge], object]) -> EnvironmentFeatures:
    """Plays an environment with random actions until enough is known of it.

    Args:
        options: of the run; seeds are those of the probe.
        start: launches a simulator behind the bridge, or opens a port for one.

    Raises:
        UserError: the environment has no agents.
        BridgeError: the simulator cannot be started, or breaks off.
    """
    unrestarted = options.env_settings.model_copy(update={"seed": 0, "max_lifetime_restarts": 0})
    settings = bridge_settings(options.model_copy(update={"env_settings": unrestarted}), None, lambda _: ())
    _logger.info("The environment acts at random, to choose settings: about half a minute if it is slow.")
    player = _RandomPlayer()
    with Bridge(settings) as bridge:
        start(bridge)
        while not player.knows_enough:
            began = time.perf_counter()
            events = bridge.receive(settings.timeout_wait_s)
            player.waited_s += time.perf_counter() - began
            if not player.messages:
                player.waited_s = 0.0  # it has started
            for event in events:
                if isinstance(event, Departure):
                    raise BridgeError(event.reason)
                bridge.reply(event.simulator, player.answer(event))
    return player.features()


class _RandomPlayer:
    """Answers a simulator with random actions and collects statistics."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(0)
        self._specs: dict[str, ActionSpec] = {}
        self._tallies: dict[str, Tally] = {}
        self.messages = 0
        self._agents_of_groups: dict[tuple[int, int], set[str]] = {}
        self.waited_s = 0.0

    @property
    def knows_enough(self) -> bool:
        """Whether the probe may end."""
        if self.waited_s >= MOST_SECONDS and self.messages.bit_count() == 1:
            return True
        if self.messages < LEAST_MESSAGES:
            return False
        enough = all(tally.episodes >= ENOUGH_EPISODES for tally in self._tallies.values())
        return enough or self.messages >= MOST_MESSAGES

    def answer(self, tick: Tick) -> dict[str, ActionBatch]:
        """Random actions for all agents that wait."""
        for behavior_id, spec in tick.new_specs.items():
            name, _ = parse_behavior_id(behavior_id)
            self._specs[behavior_id] = spec.action_spec
            self._tallies.setdefault(name, Tally(name, spec))
        self.messages += 1
        actions = {}
        for behavior_id, batch in tick.steps.items():
            name, team_id = parse_behavior_id(behavior_id)
            actions[behavior_id] = random_actions(batch, self._specs[behavior_id], self._generator)
            self._tallies[name].add(team_id, batch, actions[behavior_id])
            for group_id in np.unique(batch.group_ids[batch.group_ids > 0]).tolist():
                self._agents_of_groups.setdefault((team_id, group_id), set()).add(name)
        return actions

    def features(self) -> EnvironmentFeatures:
        """The features of the environment. Raises UserError where no agent has acted."""
        behaviors = [tally.features() for tally in self._tallies.values()]
        if not any(behavior.length > 0 and behavior.agents for behavior in behaviors):
            raise UserError("the environment has no agents: no settings can be suggested for it")
        mixed = {tuple(sorted(names)) for names in self._agents_of_groups.values() if len(names) > 1}
        return EnvironmentFeatures(
            behaviors=tuple(behaviors),
            teams=tuple(sorted(mixed)),
            messages=self.messages,
        )


def random_actions(batch: StepBatch, spec: ActionSpec, generator: np.random.Generator) -> ActionBatch:
    """Actions for all waiting agents: uniform numbers in [-1, 1], and uniform choices among the allowed ones."""
    allowed = batch.allowed_actions[batch.num_terminal :]
    actions = ActionBatch.zeros(len(allowed), spec)
    actions.continuous[:] = generator.uniform(-1, 1, actions.continuous.shape)
    begin = 0
    for branch, choices in enumerate(spec.discrete_branches):
        draws = generator.random((len(allowed), choices)) * allowed[:, begin : begin + choices]
        actions.discrete[:, branch] = draws.argmax(axis=1)
        begin += choices
    return actions
