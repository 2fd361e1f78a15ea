"""Metrics under the names of earlier multi-agent libraries, beside the built-in names.

    mlagents-style learn CONFIG --run-id=ID --hooks published_names

So a run can be compared with published curves, in TensorBoard and in metrics.jsonl.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from trainer_service.learning.rollout.episode_scores import Evaluation
from trainer_service.running.callbacks import Callback, EndedEpisodes, RunView

UPDATE_TAGS: Mapping[str, tuple[str, ...]] = {
    "Losses/Value Loss": ("_overall/critic_loss", "critic_loss"),
    "Losses/Policy Loss": ("actor_loss",),
    "Policy/Entropy": ("entropy",),
    "Policy/Advantage": ("advantage",),
    "Policy/Learning Rate": ("learning_rate",),
    "Policy/Exploration Rate": ("_overall/exploration_rate", "epsilon-greedy"),
    "Policy/Mean Q": ("predictQ",),
    "Policy/Extrinsic Value Estimate": ("predict_value",),
    "Replay/Beta": ("_overall/beta",),
}
"""Published names by built-in tag; each value is the mean over a group's agents."""

_AGENT_LOSS_TAG = re.compile(r"Losses/Agent (\d+) Value Loss")


class PublishedNames(Callback):
    """A callback that adds a run's metrics once more under their published names.

    ``agent_0/…`` is of the agents with index 0 in their groups, and so on. Where an agent has left its place to
    another, both are counted there.

    ``_overall/train_reward`` is the return of a group: everyone's rewards, and once the group's own.
    ``_overall/train_ep_steps`` counts decisions of agents. ``_overall/eval_reward`` and ``_overall/test_ep_steps`` are
    of evaluations during the run.

    ``Train-Results/…``, ``Test-Results/…``, ``actor_loss`` and the like are XuanCe's names. Its episode rewards are
    means over agents, so they are of agents here, too: without rewards that groups get together.
    """

    def on_update_end(self, run: RunView, behavior: str, metrics: Mapping[str, float]) -> None:
        """Adds losses and schedules."""
        for tag, names in UPDATE_TAGS.items():
            for name in names if tag in metrics else ():
                run.add_statistic(behavior, name, metrics[tag])
        for tag, value in metrics.items():
            if of_agent := _AGENT_LOSS_TAG.fullmatch(tag):
                run.add_statistic(behavior, f"agent_{of_agent[1]}/critic_loss", value)

    def on_episode_end(self, run: RunView, behavior: str, episodes: EndedEpisodes) -> None:
        """Adds returns of agents and of groups, and the lengths of agents' episodes."""
        for agent_index, value in zip(
            episodes.agent_indices.tolist(), episodes.returns.tolist(), strict=True
        ):
            if agent_index >= 0:
                run.add_statistic(behavior, f"agent_{agent_index}/train_reward", value)
        for value in episodes.returns:
            run.add_statistic(behavior, "Train-Results/Episode-Rewards", float(value))
        for value in episodes.group_returns:
            run.add_statistic(behavior, "_overall/train_reward", float(value))
        for steps in episodes.lengths:
            run.add_statistic(behavior, "_overall/train_ep_steps", float(steps))
            run.add_statistic(behavior, "Train-Results/Episode-Steps", float(steps))

    def on_evaluation(self, run: RunView, evaluation: Evaluation) -> None:
        """Adds the returns of the frozen policy, and the lengths of its episodes."""
        score = evaluation.score
        if score.value is not None:
            run.add_statistic(evaluation.behavior, "_overall/eval_reward", score.value)
        for agent_index in sorted(set(score.agent_indices) - {-1}):
            returns = score.returns_at(agent_index)
            run.add_statistic(
                evaluation.behavior, f"agent_{agent_index}/eval_reward", sum(returns) / len(returns)
            )
        if score.returns:
            for name, value in (("Mean", np.mean(score.returns)), ("Std", np.std(score.returns))):
                tag = f"Test-Results/Episode-Rewards/{name}-Score"
                run.add_statistic(evaluation.behavior, tag, float(value))
        if score.lengths:
            steps = sum(score.lengths) / len(score.lengths)
            run.add_statistic(evaluation.behavior, "_overall/test_ep_steps", steps)
