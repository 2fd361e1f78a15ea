"""PPO in a program's own loop, on arrays: 32 agents learn to walk to the middle of a line."""

import numpy as np

from trainer_service.config import NetworkSettings, PPOSettings
from trainer_service.learning import PPO, ActRequest, Compute, TrajectoryAssembler
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

AGENTS, LIMIT = 32, 20
SPEC = BehaviorSpec((ObservationSpec("place", (1,)),), ActionSpec(discrete_branches=(2,)))


class Line:
    """Agents at places from -5 to 5 that step left or right. The middle ends an episode and pays 1."""

    def __init__(self) -> None:
        self.rng, self.all = np.random.default_rng(1), np.ones(AGENTS, np.bool_)
        self.place, self.time = self.rng.integers(1, 6, AGENTS), np.zeros(AGENTS, np.int64)

    def step(self, right: np.ndarray) -> StepBatch:
        self.place, self.time = np.clip(self.place + 2 * right - 1, -5, 5), self.time + 1
        arrived = self.place == 0
        ended = arrived | (self.time == LIMIT)
        rewards = np.where(arrived, 1.0, -0.05)
        over = self.rows(ended, rewards, terminated=arrived[ended], truncated=~arrived[ended])
        self.place[ended] = self.rng.integers(1, 6, ended.sum()) * self.rng.choice([-1, 1], ended.sum())
        self.time[ended] = 0  # these agents wait for the first action of their next episode
        return concatenate(over, self.rows(self.all, np.where(ended, 0.0, rewards)))

    def rows(self, agents: np.ndarray, rewards: np.ndarray, **ends: np.ndarray) -> StepBatch:
        seen = (self.place[agents, None] / 5).astype(np.float32)
        ids, allowed = np.flatnonzero(agents), np.ones((len(seen), 2), np.bool_)
        return step_batch(
            [seen], rewards[agents].astype(np.float32), agent_ids=ids, allowed_actions=allowed, **ends
        )


def train(steps: int) -> float:
    """Trains for so many agent steps. Returns the mean return of the last 100 episodes; the best is about 0.9."""
    hyperparameters = PPOSettings(batch_size=128, buffer_size=1024, learning_rate=3e-3)
    learner = PPO(SPEC, hyperparameters, NetworkSettings(hidden_units=32, num_layers=1), Compute(seed=1))
    assembler = TrajectoryAssembler(SPEC, learner.horizon, learner.actor.memory_size)
    line, done, returns = Line(), 0, []
    batch = line.rows(line.all, np.zeros(AGENTS))
    learner.prepare(step=0)
    while done < steps:
        observed = assembler.observe(0, 0, batch)  # of simulator 0 and team 0
        done += observed.transitions
        if observed.episodes is not None:
            returns += observed.episodes.returns.tolist()
        if observed.trajectories is not None:
            learner.record(observed.trajectories)
        if learner.ready():
            learner.update(done)
        first = batch.num_terminal  # the rows from here on wait for an action
        seen, allowed = [sensor[first:] for sensor in batch.observations], batch.allowed_actions[first:]
        decisions = learner.actor.act(ActRequest(seen, allowed, assembler.memories(observed.waiting)))
        assembler.acted(observed.waiting, tuple(seen), allowed, decisions)
        batch = line.step(decisions.discrete_actions[:, 0])
    return float(np.mean(returns[-100:]))


if __name__ == "__main__":
    print(f"mean return: {train(15_000):.2f}")
