"""An environment of your own, a callback that ends the run when it is solved, and an evaluation.

python examples/own_environment.py
"""

import gymnasium
import numpy as np

import trainer_service


class Docking(gymnasium.Env):
    """A ship on a line: push it to the dock at 0, and stay there. A good return is -2."""

    observation_space = gymnasium.spaces.Box(-4.0, 4.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.steps = self.np_random.uniform(-1.0, 1.0), 0.0, 0
        return self._observation(), {}

    def step(self, action):
        self.speed += 0.2 * float(action[0])
        self.place = float(np.clip(self.place + self.speed, -4.0, 4.0))
        self.steps += 1
        return self._observation(), -abs(self.place), False, self.steps == 20, {}

    def _observation(self):
        return np.array([self.place, self.speed], np.float32)


class Solved(trainer_service.Callback):
    """Ends the run when the last 200 episodes have a good mean return."""

    def __init__(self):
        self.returns = []

    def on_episode_end(self, run, behavior, episodes):
        self.returns = [*self.returns, *episodes.counted_returns][-200:]
        if len(self.returns) == 200 and np.mean(self.returns) > -2.0:
            run.stop(f"solved after {run.steps[behavior]} steps")


SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 128, "buffer_size": 1024, "learning_rate": 2e-3},
    "max_steps": 60_000,
}

if __name__ == "__main__":
    sixteen = ["--copies", "16"]
    run = trainer_service.train(
        SETTINGS, Docking, env_args=sixteen, callbacks=[Solved()], run_id="docking", seed=1, force=True
    )
    score = trainer_service.evaluate(run, Docking, episodes=50)["Docking"]
    print(f"{run.steps['Docking']} steps, mean return {score.mean_return:.2f} ± {score.std_return:.2f}")
