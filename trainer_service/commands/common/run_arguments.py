# ruff: noqa: E501
"""The keys of the configuration that have a flag, and an argument of ``train``.

Written by tools/write_configuration_docs.py from the models in ``trainer_service.config``, which mark them.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict, get_type_hints

from trainer_service.commands.common.settings import Setting


# fmt: off
class SimulatorArguments(TypedDict, total=False):
    """Settings for which ``train`` has parameters of its own, which take more."""

    env_path: Annotated[str | None, Setting("env_settings.env_path", "--env", "str", "ENV",
        "an executable, or an environment in Python: sim:NAME, gym:ID, FILE.py:NAME and others; null waits for simulators to come, and a resumed run keeps its own then, unless that is an executable")]
    env_args: Annotated[Sequence[str] | None, Setting("env_settings.env_args", "--env-args", "list", "…",
        "arguments for each simulator that is started; on a command line everything that follows")]


class RunArguments(TypedDict, total=False):
    """Settings that ``train`` takes besides a configuration; None leaves a setting as it is. Their meaning is in
    docs/configuration.md, under the same names."""

    base_port: Annotated[int | None, Setting("env_settings.base_port", "--base-port", "int", "PORT",
        "port of the first simulator that is started, the next ones counting up; null lets the system choose")]
    num_envs: Annotated[int | None, Setting("env_settings.num_envs", "--num-envs", "int", "N",
        "number of simulators to start. With two or more in processes of their own, runs of one seed differ, as the order in which their messages arrive does; in the trainer's process (isolate: false) they repeat (default 1)")]
    isolate: Annotated[bool | str | None, Setting("env_settings.isolate", "--isolate", "bool", "",
        "whether simulators in Python run in separate processes. In the trainer's process they are a few times faster, but a crash of the environment ends the run, which resume continues from its last save. auto is false with one simulator, except for lists of agents, schemes of plugins, --vector async, recordings and windows")]
    num_areas: Annotated[int | None, Setting("env_settings.num_areas", "--num-areas", "int", "N",
        "copies of the training area in each simulator (default 1)")]
    picture_layout: Annotated[str | None, Setting("env_settings.picture_layout", "--picture-layout", "str", "ORDER",
        "the order of numbers in uncompressed pictures of Unity's packages since 3.0: hwc (height, width, channels), as 3.0.0 and 4.0.0 write them, or chw, as 4.0.1 and later do. auto goes by the version that the simulator names, for recordings, too, which name none. Packages from git between the two call themselves 4.0.0 and need chw")]
    timeout_wait: Annotated[int | None, Setting("env_settings.timeout_wait", "--timeout-wait", "int", "SECONDS",
        "seconds to wait for a simulator (default 60)")]
    seed: Annotated[int | None, Setting("env_settings.seed", "--seed", "int", "N",
        "seed of the run; -1 chooses one from 0 to 9999. On one CPU a run repeats bit for bit if it has one simulator, or if all run in the trainer's process; with two or more processes the order of arrival differs (default -1)")]
    max_lifetime_restarts: Annotated[int | None, Setting("env_settings.max_lifetime_restarts", "--max-lifetime-restarts", "int", "N",
        "how often one simulator may be restarted; -1 means without limit (default 10)")]
    restarts_rate_limit_n: Annotated[int | None, Setting("env_settings.restarts_rate_limit_n", "--restarts-rate-limit-n", "int", "N",
        "how often one may be restarted within restarts_rate_limit_period_s; -1 means without limit (default 1)")]
    restarts_rate_limit_period_s: Annotated[int | None, Setting("env_settings.restarts_rate_limit_period_s", "--restarts-rate-limit-period-s", "int", "SECONDS",
        "seconds over which restarts_rate_limit_n counts (default 60)")]
    width: Annotated[int | None, Setting("engine_settings.width", "--width", "int", "N",
        "pixels of the window (default 84)")]
    height: Annotated[int | None, Setting("engine_settings.height", "--height", "int", "N",
        "pixels of the window (default 84)")]
    quality_level: Annotated[int | None, Setting("engine_settings.quality_level", "--quality-level", "int", "N",
        "rendering quality, as the engine numbers it (default 5)")]
    time_scale: Annotated[float | None, Setting("engine_settings.time_scale", "--time-scale", "float", "X",
        "simulated seconds for each real one (default 20)")]
    target_frame_rate: Annotated[int | None, Setting("engine_settings.target_frame_rate", "--target-frame-rate", "int", "N",
        "frames per second to aim at; -1 means as many as possible (default -1)")]
    capture_frame_rate: Annotated[int | None, Setting("engine_settings.capture_frame_rate", "--capture-frame-rate", "int", "N",
        "simulated frames per second (default 60)")]
    no_graphics: Annotated[bool | None, Setting("engine_settings.no_graphics", "--no-graphics", "bool", "",
        "whether the engine runs without a window")]
    no_graphics_monitor: Annotated[bool | None, Setting("engine_settings.no_graphics_monitor", "--no-graphics-monitor", "bool", "",
        "whether only the first simulator has a window")]
    max_env_steps: Annotated[int | None, Setting("max_env_steps", "--max-env-steps", "int", "N",
        "environment steps after which the run ends, where max_steps are not used up before; null: however many. One is one step of one copy of the task, with all of its agents (docs/running.md)")]
    run_id: Annotated[str | None, Setting("checkpoint_settings.run_id", "--run-id", "str", "ID",
        "name of the run's folder, or the folder in results_dir (default ppo)")]
    initialize_from: Annotated[str | None, Setting("checkpoint_settings.initialize_from", "--initialize-from", "str", "ID",
        "another run to take initial weights from: its id, or its folder")]
    resume: Annotated[bool | int | str | None, Setting("checkpoint_settings.resume", "--resume", "bool", "STEP|best|latest",
        "whether to continue the run: from its newest checkpoint (true, latest), from that of a step, or from the one with the best score (best)")]
    autosave_interval_s: Annotated[int | None, Setting("checkpoint_settings.autosave_interval_s", "--autosave-interval-s", "int", "SECONDS",
        "seconds between two saves for resume: the most that a power cut can cost. The numbered checkpoints of checkpoint_interval come besides (default 300)")]
    force: Annotated[bool | None, Setting("checkpoint_settings.force", "--force", "bool", "",
        "whether an existing run of this id may be overwritten")]
    inference: Annotated[bool | None, Setting("checkpoint_settings.inference", "--inference", "bool", "",
        "whether to act without learning, and write nothing")]
    results_dir: Annotated[str | os.PathLike[str] | None, Setting("checkpoint_settings.results_dir", "--results-dir", "str", "DIR",
        "the folder of all runs (default results)")]
    device: Annotated[str | None, Setting("torch_settings.device", "--torch-device", "str", "DEVICE",
        "cpu, cuda, cuda:0 …; null or auto decides for each behavior. A GPU, if there is one, computes behaviors with pictures, and policies for which batch_size times the number of weights is 2^27 or more. That is 256 rows of two layers of 1,024 units, or of an LSTM of 512. The CPU computes the others. Learner ranks take a GPU each if there is one")]
    num_workers: Annotated[int | None, Setting("distributed.num_workers", "--num-workers", "int", "N",
        "rollout workers; num_envs simulators run in each. 0 collects in the trainer's own process, without Ray")]
    ray_address: Annotated[str | None, Setting("distributed.ray_address", "--ray-address", "str", "ADDRESS",
        "the Ray cluster that workers run on: auto (one that this machine belongs to), HOST:PORT or ray://HOST:PORT; null starts Ray on this machine, for this run")]
    insecure_ray: Annotated[bool | None, Setting("distributed.insecure_ray", "--insecure-ray", "bool", "",
        "whether a cluster may be used that does not require a token: anyone who reaches it can run code on it")]
    num_learners: Annotated[int | None, Setting("distributed.num_learners", "--num-learners", "int", "K",
        "learner ranks, each a process: on GPUs one for each. Their gradients are averaged at each step (default 1)")]
    track: Annotated[Sequence[str] | None, Setting("track", "--track", "list", "NAME",
        "trackers of experiments that get what TensorBoard gets: mlflow, trackio, wandb, and those of plugins; the flag can be repeated")]
    debug: Annotated[bool | None, Setting("debug", "--debug", "bool", "",
        "whether debug messages are logged")]
    log_format: Annotated[str | None, Setting("log_format", "--log-format", "str", "FORMAT",
        "json logs one JSON object a line on standard output, with the metrics of each summary, and draws no table (default text)")]
    metrics_port: Annotated[int | None, Setting("metrics_port", "--metrics-port", "int", "PORT",
        "a port of this machine on which the run answers Prometheus (/metrics) and health checks (/health); null for none. It needs the package prometheus-client")]


# fmt: on
SETTINGS: Mapping[str, Setting] = {
    name: hint.__metadata__[0]
    for arguments in (SimulatorArguments, RunArguments)
    for name, hint in get_type_hints(arguments, include_extras=True).items()
}
"""Flags and arguments by the name of their key."""
