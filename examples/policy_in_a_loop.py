"""A trained policy in a program of your own: as an agent of an environment, and on arrays.

python examples/policy_in_a_loop.py
"""

from __future__ import annotations

import gymnasium
import numpy as np

import trainer_service

if __name__ == "__main__":
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 256, "buffer_size": 2048, "learning_rate": 2e-3},
        "max_steps": 30_000,
        "summary_freq": 10_000,
    }
    run = trainer_service.train(
        settings, "CartPole-v1", env_args=["--agents", "16"], run_id="pole", seed=1, force=True, verbose=1
    )
    policy = trainer_service.load_policy(run)

    # In an environment's own observations and actions: wrap it. A policy with memory carries its state along.
    env = gymnasium.make("CartPole-v1")
    agent = policy.wrap(env)
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        state, total, over = None, 0.0, False
        while not over:
            action, state = agent.predict(observation, state, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        print(f"episode with seed {seed}: {total:.0f}")

    # On arrays: one row for each agent, the best choice of each instead of a drawn one.
    rows = np.array([[0.0, 0.0, 0.1, 0.5], [0.0, 0.0, -0.1, -0.5]], np.float32)
    print("pushes to the right:", policy.act(rows, deterministic=True).discrete[:, 0].tolist())
