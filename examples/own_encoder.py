"""A torch module of your own that encodes all sensors: it looks at the cells of a map around the agent.

python examples/own_encoder.py
"""

from collections.abc import Mapping

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import Tensor, nn

import trainer_service
from trainer_service.plugins import register

SIZE, MOVES = 6, ((0, 1), (1, 0), (0, -1), (-1, 0))


class Forest(gymnasium.Env):
    """Walks over a torus for 20 steps and collects mushrooms."""

    observation_space = Dict(mushrooms=Box(0.0, 1.0, (SIZE, SIZE)), place=MultiDiscrete([SIZE, SIZE]))
    action_space = Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.mushrooms = (self.np_random.random((SIZE, SIZE)) < 0.5).astype(np.float32)
        self.place, self.steps = self.np_random.integers(SIZE, size=2), 0
        return {"mushrooms": self.mushrooms.copy(), "place": self.place}, {}

    def step(self, action):
        self.place, self.steps = (self.place + MOVES[action]) % SIZE, self.steps + 1
        found, self.mushrooms[tuple(self.place)] = float(self.mushrooms[tuple(self.place)]), 0.0
        return {"mushrooms": self.mushrooms.copy(), "place": self.place}, found, False, self.steps == 20, {}


class Surroundings(nn.Module):
    """The 5 x 5 cells around the agent, by a convolution of which only the agent's own cell counts."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], *, channels: int = 32) -> None:
        super().__init__()  # shapes: mushrooms (36,) and place (12,), as small boxes and choices become vectors
        self.convolution = nn.Conv2d(1, channels, 5, padding=2, padding_mode="circular")

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        field, place = observations["mushrooms"].view(-1, 1, SIZE, SIZE), observations["place"]
        here = place[:, :SIZE].unsqueeze(2) * place[:, SIZE:].unsqueeze(1)
        return (self.convolution(field).relu() * here.unsqueeze(1)).sum(dim=(2, 3))


if __name__ == "__main__":
    register("trainer_service.observation_encoders", "surroundings", Surroundings)
    net = {"encoder": "surroundings", "encoder_kwargs": {"channels": 32}, "hidden_units": 64}
    hyper = {"batch_size": 256, "buffer_size": 2048, "learning_rate": 3e-3}
    settings = {"trainer_type": "ppo", "hyperparameters": hyper, "network_settings": net, "max_steps": 20_000}
    copies = ["--copies", "32"]
    run = trainer_service.train(settings, Forest, env_args=copies, run_id="forest", seed=1, force=True)
    score = trainer_service.evaluate(run, Forest)["Forest"]
    print(f"{score.mean_return:.1f} mushrooms; without the encoder about 5")
