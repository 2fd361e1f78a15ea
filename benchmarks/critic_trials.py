"""Soft actor-critic with other critics, one part at a time, on MuJoCo: which part pays in returns per minute of a core.

    python benchmarks/critic_trials.py run Hopper-v5 --part crossq --seed 1 --out FOLDER     # one run, on one core
    python benchmarks/critic_trials.py time                  # ms of a gradient step of each part
    python benchmarks/critic_trials.py table FOLDER          # scores of the runs in a folder

The program uses nothing of the trainer, so a part can be tried before it has a key. A run that has a file
in FOLDER is not run again.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import itertools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

GAMMA, TAU, START = 0.99, 0.005, 5000
CRITICS, ACTOR_WIDTH, EVERY = 2, 256, 10_000
LOG_SIGMA = (-20.0, 2.0)
EPSILON = 1e-3
RENORM_AFTER = 100_000
"""Updates after which batch renormalization replaces batch normalization (Bhatt et al. 2024)."""
VALUE_RANGE = 5.0
"""Scaled values of the bins lie between −5 and 5 (Lee et al. 2025)."""


@dataclass(frozen=True)
class Part:
    """Changes of plain SAC."""

    norm: str = "none"
    """Of the critics' layers: none, layer or batch."""
    actor_norm: str = "none"
    has_targets: bool = True
    policy_delay: int = 1
    learning_rate: float = 3e-4
    beta1: float = 0.9
    quantiles: int = 0
    dropped: int = 2
    """Largest quantiles of each critic that targets leave out (Kuznetsov et al. 2020)."""
    bins: int = 0
    """Of a categorical value that learns by cross-entropy (Farebrother et al. 2024)."""
    scales: bool = False
    """Whether observations and rewards are scaled by running moments."""
    n_step: int = 1
    updates: int = 1
    """Gradient steps for each step of the environment."""
    width: int = 256
    batch_size: int = 256


PARTS = {
    "plain": Part(),
    "layer": Part(norm="layer"),
    "crossq": Part(
        norm="batch", actor_norm="batch", has_targets=False, policy_delay=3, learning_rate=1e-3, beta1=0.5
    ),
    "batch_critics": Part(
        norm="batch", has_targets=False, policy_delay=3, learning_rate=1e-3, beta1=0.5
    ),
    "tqc": Part(quantiles=25),
    "bins": Part(bins=101),
    "scaled": Part(scales=True),
    "n_step_3": Part(n_step=3),
    "two_updates": Part(updates=2),
    "delay_3": Part(policy_delay=3, learning_rate=1e-3),
    "batch_128": Part(batch_size=128),
    "layer_delay_3": Part(norm="layer", policy_delay=3, learning_rate=1e-3),
    "layer_tqc": Part(norm="layer", quantiles=25),
    "crossq_512": Part(
        norm="batch", actor_norm="batch", has_targets=False, policy_delay=3, learning_rate=1e-3, beta1=0.5,
        width=512,
    ),
}  # fmt: skip


class Standardized(torch.autograd.Function):
    """(x − mean) / deviation · weight + bias over the rows of [N, B, F], with the gradient in closed form.

    Sums over rows are products with a row of ones. In autograd's own operations it takes five times as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        average = x.new_full((len(x), 1, x.shape[1]), 1 / x.shape[1])
        mean = torch.bmm(average, x)
        var = (torch.bmm(average, x * x) - mean * mean).clamp_min(0)
        scale = torch.rsqrt(var + EPSILON)
        y = torch.addcmul(bias - mean * weight * scale, x, weight * scale)
        ctx.save_for_backward(x, mean, scale, weight, average)
        ctx.mark_non_differentiable(mean, var)
        return y, mean, var

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, mean, scale, weight, average = ctx.saved_tensors
        of_bias = torch.bmm(average, grad)
        of_weight = (torch.bmm(average, grad * x) - mean * of_bias) * scale
        slope = weight * scale * scale * of_weight
        of_x = torch.addcmul(slope * mean - weight * scale * of_bias, x, -slope)
        return of_x.addcmul_(grad, weight * scale), of_weight * x.shape[1], of_bias * x.shape[1]


class BatchRenorm(nn.Module):
    """Batch renormalization of [N, B, F], by each network's own moments (Ioffe 2017)."""

    def __init__(self, networks: int, features: int) -> None:
        super().__init__()
        shape = (networks, 1, features)
        self.weight, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            scale = self.weight * torch.rsqrt(self.var + EPSILON)
            return torch.addcmul(self.bias - self.mean * scale, x, scale)
        weight, bias = self.weight, self.bias
        if self.count > RENORM_AFTER:
            running = torch.rsqrt(self.var + EPSILON)
            with torch.no_grad():
                var, mean = torch.var_mean(x, dim=1, keepdim=True, unbiased=False)
                ratio = ((var + EPSILON).sqrt() * running).clamp(1 / 3, 3)
                shift = ((mean - self.mean) * running).clamp(-5, 5)
            weight, bias = weight * ratio, bias + weight * shift
        y, mean, var = Standardized.apply(x, weight, bias)
        self.count += 1
        self.mean.lerp_(mean, 0.01)
        self.var.lerp_(var, 0.01)
        return y


class LayerNorm(nn.Module):
    """Layer normalization of [N, B, F]."""

    def __init__(self, networks: int, features: int) -> None:
        super().__init__()
        shape = (networks, 1, features)
        self.weight, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, functional.layer_norm(x, x.shape[-1:]), self.weight)


class Networks(nn.Module):
    """N networks of two hidden layers, as batched products."""

    def __init__(self, count: int, inputs: int, outputs: int, norm: str, width: int) -> None:
        super().__init__()
        sizes = [inputs, width, width, outputs]
        layers = [[nn.Linear(*each) for _ in range(count)] for each in itertools.pairwise(sizes)]
        self.weights = nn.ParameterList(
            [torch.stack([one.weight.detach().T for one in own]) for own in layers]
        )
        self.biases = nn.ParameterList(
            [torch.stack([one.bias.detach()[None] for one in own]) for own in layers]
        )
        self.norm, kinds = norm, {"batch": BatchRenorm, "layer": LayerNorm}
        normalized = {"batch": sizes[:3], "layer": sizes[1:3], "none": []}[norm]
        self.norms = nn.ModuleList(kinds[norm](count, size) for size in normalized)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [N, B, inputs] to [N, B, outputs]. Batch normalization stands before each layer, as in CrossQ."""
        if self.norm == "batch":
            x = self.norms[0](x)
        for layer in range(2):
            x = torch.baddbmm(self.biases[layer], x, self.weights[layer])
            if self.norm == "layer":
                x = self.norms[layer](x)
            x = torch.relu_(x)
            if self.norm == "batch":
                x = self.norms[layer + 1](x)
        return torch.baddbmm(self.biases[2], x, self.weights[2])


class Moments:
    """A running mean and deviation."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.sum = 1e-4, np.zeros(size), np.zeros(size)

    def add(self, value: NDArray[np.float64]) -> None:
        self.count += 1
        before = value - self.mean
        self.mean = self.mean + before / self.count
        self.sum = self.sum + before * (value - self.mean)

    @property
    def deviation(self) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(self.sum / self.count) + 1e-6)


class Replay:
    """Transitions in the order in which they were made."""

    def __init__(self, capacity: int, observations: int, actions: int) -> None:
        self.capacity, self.size, self.next = capacity, 0, 0
        self.observations = np.zeros((capacity, observations), np.float32)
        self.successors = np.zeros((capacity, observations), np.float32)
        self.actions = np.zeros((capacity, actions), np.float32)
        self.rewards = np.zeros(capacity, np.float32)
        self.terminated, self.ended = np.zeros(capacity, np.bool_), np.zeros(capacity, np.bool_)

    def add(self, *row: object) -> None:
        arrays = (
            self.observations, self.actions, self.rewards, self.successors, self.terminated, self.ended,
        )  # fmt: skip
        for array, value in zip(arrays, row, strict=True):
            array[self.next] = value
        self.next, self.size = (self.next + 1) % self.capacity, min(self.size + 1, self.capacity)

    def sums(self, rows: NDArray[np.int64], steps: int) -> tuple[NDArray[np.int64], Tensor, Tensor]:
        """The last row of at most ``steps`` from each row, its sum of rewards and the discount after it.

        An episode's end by the clock ends a sum, too, but is bootstrapped.
        """
        total, discount = self.rewards[rows].copy(), np.full(len(rows), GAMMA, np.float32)
        last, over = rows.copy(), self.ended[rows].copy()
        for _ in range(1, steps):
            following = (last + 1) % self.capacity
            goes_on = ~over & (following < self.size) & (following != self.next)
            total += np.where(goes_on, discount * self.rewards[following], 0)
            discount = np.where(goes_on, discount * GAMMA, discount)
            last = np.where(goes_on, following, last)
            over |= ~goes_on | self.ended[following]
        discount = np.where(self.terminated[last], 0, discount).astype(np.float32)
        return last, torch.from_numpy(total), torch.from_numpy(discount)


class Learner:
    """SAC with a part."""

    def __init__(self, part: Part, observations: int, actions: int, capacity: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.part, self.actions = part, actions
        self.rng = np.random.default_rng(seed)
        outputs = part.bins or part.quantiles or 1
        self.actor = Networks(1, observations, 2 * actions, part.actor_norm, ACTOR_WIDTH)
        self.critics = Networks(CRITICS, observations + actions, outputs, part.norm, part.width)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(()))
        self.optimizers = [
            torch.optim.Adam(own, lr=part.learning_rate, betas=(part.beta1, 0.999), fused=True)
            for own in ([*self.actor.parameters()], [*self.critics.parameters()], [self.log_alpha])
        ]
        self.replay = Replay(capacity, observations, actions)
        self.seen, self.returns, self.largest, self.running = Moments(observations), Moments(1), 0.0, 0.0
        self.updates = 0
        if part.bins:
            self.edges = torch.linspace(-VALUE_RANGE, VALUE_RANGE, part.bins + 1)
            self.centres = (self.edges[:-1] + self.edges[1:]) / 2
            self.sigma = 0.75 * 2 * VALUE_RANGE / part.bins
        if part.quantiles:
            self.fractions = (torch.arange(part.quantiles) + 0.5) / part.quantiles

    def watch(self, observation: NDArray[np.float64], reward: float, *, ended: bool) -> None:
        """Counts what observations and rewards are scaled by."""
        self.seen.add(observation)
        self.running = self.running * GAMMA + reward
        self.returns.add(np.array([self.running]))
        self.largest = max(self.largest, abs(self.running))
        self.running = 0.0 if ended else self.running

    def scaled(self, observations: NDArray[np.float32]) -> Tensor:
        if self.part.scales:
            scaled = (observations - self.seen.mean) / self.seen.deviation
            observations = scaled.clip(-10, 10).astype(np.float32)
        return torch.from_numpy(observations)

    @property
    def reward_scale(self) -> float:
        deviation = float(self.returns.deviation[0])
        if self.part.bins:
            return max(deviation, self.largest / VALUE_RANGE)
        return deviation if self.part.scales else 1.0

    def parameters_of(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_sigma = self.actor(observations[None])[0].chunk(2, -1)
        return mean, log_sigma.clamp(*LOG_SIGMA)

    def draw(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Actions and their log-probabilities."""
        mean, log_sigma = self.parameters_of(observations)
        noise = torch.randn_like(mean)
        unbounded = mean + noise * log_sigma.exp()
        density = -0.5 * noise * noise - log_sigma - 0.5 * math.log(2 * math.pi)
        density = density - 2 * (math.log(2) - unbounded - functional.softplus(-2 * unbounded))
        return torch.tanh(unbounded), density.sum(-1)

    @torch.no_grad()
    def act(self, observation: NDArray[np.float64], *, greedy: bool) -> NDArray[np.float32]:
        self.actor.eval()
        row = self.scaled(observation.astype(np.float32)[None])
        action = torch.tanh(self.parameters_of(row)[0]) if greedy else self.draw(row)[0]
        return np.asarray(action[0].numpy())

    def critic_values(self, outputs: Tensor) -> Tensor:
        """Maps [N, B, outputs] to values [N, B]."""
        return outputs.softmax(-1) @ self.centres if self.part.bins else outputs.mean(-1)

    def update(self) -> None:
        part, replay = self.part, self.replay
        self.updates += 1
        rows = self.rng.integers(0, replay.size, part.batch_size)
        last, rewards, discounts = replay.sums(rows, part.n_step)
        observations = self.scaled(replay.observations[rows])
        successors = self.scaled(replay.successors[last])
        actions, rewards = torch.from_numpy(replay.actions[rows]), rewards / self.reward_scale
        alpha = self.log_alpha.detach().exp()
        self.actor.eval()
        with torch.no_grad():
            next_actions, next_log_prob = self.draw(successors)
        now, then = torch.cat([observations, actions], 1), torch.cat([successors, next_actions], 1)
        if part.has_targets:
            with torch.no_grad():
                next_outputs = self.targets(then.expand(CRITICS, -1, -1))
            outputs = self.critics(now.expand(CRITICS, -1, -1))
        else:  # one pass over both, so that both have the same moments
            self.critics.train()
            both = self.critics(torch.cat([now, then]).expand(CRITICS, -1, -1))
            outputs, next_outputs = both[:, : part.batch_size], both[:, part.batch_size :].detach()
        loss = self.critic_loss(outputs, next_outputs, rewards, discounts, alpha * next_log_prob)
        self.step(1, loss)
        if self.updates % part.policy_delay == 0:
            self.actor.train()
            self.critics.eval().requires_grad_(False)
            drawn, log_prob = self.draw(observations)
            values = self.critic_values(
                self.critics(torch.cat([observations, drawn], 1).expand(CRITICS, -1, -1))
            )
            values = values.mean(0) if part.quantiles else values.amin(0)
            self.step(0, (alpha * log_prob - values).mean())
            self.critics.requires_grad_(True)
            self.step(2, -self.log_alpha * (log_prob.detach().mean() - self.actions))
        if part.has_targets:
            with torch.no_grad():
                torch._foreach_lerp_([*self.targets.parameters()], [*self.critics.parameters()], TAU)

    def critic_loss(
        self, outputs: Tensor, next_outputs: Tensor, rewards: Tensor, discounts: Tensor, entropy: Tensor
    ) -> Tensor:
        """Of all critics. outputs: [N, B, outputs]; entropy: α ln π(a'). [B]"""
        part = self.part
        if part.quantiles:
            kept = CRITICS * (part.quantiles - part.dropped)
            atoms = next_outputs.transpose(0, 1).reshape(part.batch_size, -1).sort(-1)[0][:, :kept]
            targets = rewards[:, None] + discounts[:, None] * (atoms - entropy[:, None])
            errors = targets[None, :, None, :] - outputs[:, :, :, None]
            weights = (self.fractions[:, None] - (errors.detach() < 0).float()).abs()
            size = errors.abs()
            huber = torch.where(size > 1, size - 0.5, 0.5 * size.square())
            return (weights * huber).mean((1, 2, 3)).sum()
        values = self.critic_values(next_outputs).amin(0) - entropy
        targets = (rewards + discounts * values).detach()
        if part.bins:
            below = torch.special.ndtr(
                (self.edges - targets.clamp(-VALUE_RANGE, VALUE_RANGE)[:, None]) / self.sigma
            )
            shares = (below[:, 1:] - below[:, :-1]) / (below[:, -1:] - below[:, :1])
            return -(shares[None] * outputs.log_softmax(-1)).sum(-1).mean(1).sum()
        return 0.5 * (outputs[..., 0] - targets).square().mean(1).sum()

    def step(self, optimizer: int, loss: Tensor) -> None:
        self.optimizers[optimizer].zero_grad()
        loss.backward()
        self.optimizers[optimizer].step()


def keep_freed_memory() -> None:
    """As the trainer does it: else glibc returns each minibatch's tensors to the system."""
    for number, value in ((-1, 1 << 28), (-3, 1 << 25)):
        ctypes.CDLL(None).mallopt(number, value)


def run(env_id: str, name: str, seed: int, steps: int, out: Path) -> None:
    """Trains, and appends to a file what 20 greedy episodes return after every 10,000 steps; 100 at the end."""
    import gymnasium
    import mujoco

    path = out / f"{env_id}-{name}-{seed}-{steps}.jsonl"
    if path.exists():
        print(f"{path} exists")
        return
    options = {"include_cfrc_ext_in_observation": False} if env_id.startswith("Ant") else {}
    env, other = (gymnasium.make(env_id, **options) for _ in range(2))
    low, high = env.action_space.low, env.action_space.high
    observations, actions = env.observation_space.shape[0], len(low)
    part, rng = PARTS[name], np.random.default_rng(seed)
    learner = Learner(part, observations, actions, steps, seed)

    def bounded(action: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(low + (action + 1) / 2 * (high - low))

    def episode(number: int) -> float:
        observation, over, total = other.reset(seed=number)[0], False, 0.0
        while not over:
            observation, reward, terminated, truncated, _ = other.step(
                bounded(learner.act(observation, greedy=True))
            )
            total, over = total + float(reward), terminated or truncated
        return total

    versions = {"mujoco": mujoco.__version__, "torch": torch.__version__, "gymnasium": gymnasium.__version__}
    lines = [json.dumps({"env": env_id, "part": name, "seed": seed, "steps": steps, **versions})]
    observation, used, begin = env.reset(seed=seed)[0], 0.0, time.process_time()
    for step in range(1, steps + 1):
        action = rng.uniform(-1, 1, actions) if step <= START else learner.act(observation, greedy=False)
        following, reward, terminated, truncated, _ = env.step(bounded(action))
        ended = terminated or truncated
        learner.watch(observation, float(reward), ended=ended)
        learner.replay.add(observation, action, reward, following, terminated, ended)
        observation = env.reset()[0] if ended else following
        for _ in range(part.updates if step > START else 0):
            learner.update()
        if step % EVERY == 0:
            used += time.process_time() - begin
            returns = [episode(1000 + number) for number in range(100 if step == steps else 20)]
            line = {
                "step": step, "cpu_s": round(used, 1), "mean": round(statistics.fmean(returns), 1),
                "deviation": round(statistics.pstdev(returns), 1),
            }  # fmt: skip
            lines.append(json.dumps(line))
            print(env_id, name, seed, line, flush=True)
            begin = time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def measure(count: int = 200) -> None:
    """Prints the milliseconds of one core that the updates of one step take, with 17 inputs and 6 actions."""
    rng, spent = np.random.default_rng(1), defaultdict(list)
    learners = {name: Learner(part, 17, 6, 10_000, 1) for name, part in PARTS.items()}
    for learner in learners.values():
        for number in range(2000):
            row = rng.standard_normal(17).astype(np.float32)
            learner.watch(row.astype(np.float64), 1.0, ended=False)
            learner.replay.add(row, np.tanh(row[:6]), row[0], row, False, number % 100 == 99)
    for turn in range(6):
        for name, learner in learners.items():
            begin = time.process_time()
            for _ in range(count // 5 * learner.part.updates):
                learner.update()
            if turn:
                spent[name].append((time.process_time() - begin) / (count // 5) * 1000)
    print("| part | ms of a step, median | of plain |\n| --- | ---: | ---: |")
    plain = statistics.median(spent["plain"])
    for name, own in spent.items():
        print(f"| {name} | {statistics.median(own):.2f} | {statistics.median(own) / plain:.2f} |")


def table(out: Path) -> None:
    """Prints what the runs in a folder reached at their end."""
    reached = defaultdict(list)
    for path in sorted(out.glob("*.jsonl")):
        first, *rest = map(json.loads, path.read_text().splitlines())
        reached[first["env"], first["steps"], first["part"]].append((rest[-1]["mean"], rest[-1]["cpu_s"]))
    print(
        "| environment | steps | part | returns of the seeds | CPU minutes |\n| --- | ---: | --- | --- | ---: |"
    )
    for (env_id, steps, name), rows in reached.items():
        returns = ", ".join(f"{mean:,.0f}" for mean, _ in rows)
        minutes = statistics.fmean(used for _, used in rows) / 60
        print(f"| {env_id} | {steps:,} | {name} | {returns} | {minutes:.0f} |")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one of the three commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("env")
    one.add_argument("--part", choices=PARTS, required=True)
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--steps", type=int, default=100_000)
    one.add_argument("--out", type=Path, required=True)
    commands.add_parser("time")
    commands.add_parser("table").add_argument("out", type=Path)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    keep_freed_memory()
    if given.command == "run":
        run(given.env, given.part, given.seed, given.steps, given.out)
    elif given.command == "time":
        measure()
    else:
        table(given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
