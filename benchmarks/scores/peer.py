"""One run of Stable-Baselines3, or of SBX for CrossQ, with the values of our rows, by a Python that has it installed.

    python peer.py LEARNER ENV SEED STEPS

PPO's values are those of RL Baselines3 Zoo, for Hopper and BipedalWalker those of CleanRL for MuJoCo.
The last policy then plays a hundred episodes without noise. Prints one JSON object: value, agent_steps, seconds and
curve, the mean return of the episodes that ended within each thirtieth of the steps, at its end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

EPISODES = 100
CURVE_POINTS = 30
PPO: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": {
        "n_envs": 1, "normalize": True, "batch_size": 64, "n_steps": 512, "gamma": 0.98, "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8,
        "vf_coef": 0.58096, "wide": True,
    },
    "Hopper-v5": {
        "n_envs": 8, "normalize": True, "n_steps": 256, "batch_size": 64, "gamma": 0.99, "learning_rate": 3e-4,
        "ent_coef": 0.0, "clip_range": 0.2, "n_epochs": 10, "gae_lambda": 0.95, "max_grad_norm": 0.5, "vf_coef": 0.5,
        "anneal": True,
    },
    "LunarLander-v3": {
        "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "BipedalWalker-v3": {
        "n_envs": 16, "normalize": True, "n_steps": 128, "batch_size": 64, "gamma": 0.99, "learning_rate": 3e-4,
        "ent_coef": 0.0, "clip_range": 0.2, "n_epochs": 10, "gae_lambda": 0.95, "max_grad_norm": 0.5, "vf_coef": 0.5,
        "anneal": True,
    },
}  # fmt: skip
OFF_POLICY: dict[str, dict[str, Any]] = {
    "sac": {"learning_starts": 10000},
    "crossq": {
        "learning_starts": 5000, "buffer_size": 300000, "policy_kwargs": {"net_arch": [256, 256]},
    },
}  # fmt: skip


def main(learner: str, env: str, seed: int, steps: int) -> None:
    """Trains and scores, and prints what came out."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    values = dict(PPO[env] if learner == "ppo" else OFF_POLICY[learner])
    worlds: Any = make_vec_env(env, n_envs=values.pop("n_envs", 1), seed=seed)
    if normalizes := values.pop("normalize", False):
        worlds = VecNormalize(worlds, gamma=values["gamma"])
    ended: list[tuple[int, float]] = []

    def note(told: dict[str, Any], _: dict[str, Any]) -> bool:
        now = told["self"].num_timesteps
        ended.extend((now, each["episode"]["r"]) for each in told["infos"] if "episode" in each)
        return True

    began = time.perf_counter()
    model = make(learner, worlds, seed, values)
    model.learn(steps, callback=note)
    seconds = time.perf_counter() - began
    judged: Any = make_vec_env(env, n_envs=1, seed=20_000 + seed)
    if normalizes:
        judged = VecNormalize(judged, training=False, norm_reward=False)
        judged.obs_rms = worlds.obs_rms
    value, _ = evaluate_policy(model, judged, n_eval_episodes=EPISODES, deterministic=True)
    made = {"value": float(value), "agent_steps": int(model.num_timesteps), "seconds": seconds}
    print(json.dumps({**made, "curve": curve(ended, steps)}))


def curve(ended: Sequence[tuple[int, float]], steps: int) -> list[tuple[int, float]]:
    """The mean return within each thirtieth of the steps in which an episode ended, at that part's end.

    ended: the step and the return of each episode; a last rollout may go beyond the steps.
    """
    size = max(steps // CURVE_POINTS, 1)
    parts: dict[int, list[float]] = {}
    for step, value in ended:
        parts.setdefault((step + size - 1) // size * size, []).append(float(value))
    return [(end, round(sum(values) / len(values), 4)) for end, values in sorted(parts.items())]


def make(learner: str, worlds: Any, seed: int, values: dict[str, Any]) -> Any:
    """The learner with these values."""
    import stable_baselines3
    from torch import nn

    if learner == "crossq":
        import sbx

        return sbx.CrossQ("MlpPolicy", worlds, seed=seed, **values)
    if learner == "sac":
        return stable_baselines3.SAC("MlpPolicy", worlds, seed=seed, device="cpu", **values)
    policy: dict[str, Any] = {}
    if values.pop("wide", False):
        policy = {
            "log_std_init": -2,
            "ortho_init": False,
            "activation_fn": nn.ReLU,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        }
    if values.pop("anneal", False):
        rate = values.pop("learning_rate")
        values["learning_rate"] = lambda remaining: rate * remaining
    return stable_baselines3.PPO("MlpPolicy", worlds, seed=seed, device="cpu", policy_kwargs=policy, **values)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
