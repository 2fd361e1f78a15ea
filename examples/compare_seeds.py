"""Two settings with three seeds each, compared by their returns with intervals.

python examples/compare_seeds.py
"""

from __future__ import annotations

import trainer_service

SEEDS, STEPS = (1, 2, 3), 8_000

if __name__ == "__main__":
    runs = []
    for rate in (3e-4, 3e-3):
        settings = {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 64, "buffer_size": 512, "learning_rate": rate},
            "network_settings": {"hidden_units": 32},
            "max_steps": STEPS,
            "summary_freq": 2000,
        }
        for seed in SEEDS:
            run_id = f"rate-{rate}-{seed}"
            print(f"{run_id}: {STEPS} steps")
            runs.append(
                trainer_service.train(
                    settings,
                    "CartPole-v1",
                    env_args=["--agents", "8"],
                    run_id=run_id,
                    seed=seed,
                    force=True,
                    verbose=0,
                )
            )
    # Runs that differ in nothing but their seed are a group. plot="curves.png" draws them (with the extra [plot]).
    for group in trainer_service.compare(*runs)["behaviors"]["CartPole-v1"]["groups"]:
        final = group["final"]
        print(f"{group['group']}: return {final['iqm']:.1f}, from {final['low']:.1f} to {final['high']:.1f}")
