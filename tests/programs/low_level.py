"""A program written against the low-level Python API of ML-Agents, for whichever class offers it.

It plays with random actions that respect the masks, set now for everybody, now for one agent, now not at all,
resets in the middle, and records all that it is told. The same simulator and plan must give the same record.

    low_level.py (ours | aliased | real) PLAN.json OUT.npz

``ours`` is unity_bridge.environment, ``aliased`` the published class on our messages, ``real`` the published class
as it is. Python 3.10 must understand it.
"""

import json
import sys
from uuid import UUID

import numpy as np

RAW_BYTES = UUID("81da6860-deab-52bd-9ba1-4d2503d0f962")
"""The bundled scenes send back whatever comes on this channel."""


def play(environment_class, plan):
    """Plays as planned and returns the record: arrays by a path such as ``003/Ball?team=0/decision/obs0``."""
    channels = Channels()
    env = environment_class(side_channels=channels.all, **plan["environment"])
    channels.talk(plan.get("parameters", {}))
    record = {}
    rng = np.random.RandomState(plan["actions_seed"])
    for step in range(plan["steps"]):
        if step == plan["reset_at"]:
            channels.say_raw(b"reset")
            env.reset()
        else:
            env.step()
        for name in sorted(env.behavior_specs):
            spec = env.behavior_specs[name].action_spec
            decisions, terminals = env.get_steps(name)
            write_steps(record, f"{step:03d}/{name}", decisions, terminals)
            act(env, name, spec, decisions, rng, step)
    record["specs"] = np.array(json.dumps(describe(env.behavior_specs), sort_keys=True))
    channels.write(record)
    env.close()
    return record


def act(env, name, spec, decisions, rng, step):
    """Sets actions of all agents, then of one agent only, then of none, in turns of three steps."""
    if step % 3 == 0:
        env.set_actions(name, random_actions(spec, decisions, range(len(decisions)), rng))
    elif step % 3 == 1 and len(decisions):
        row = rng.randint(len(decisions))
        env.set_action_for_agent(name, decisions.agent_id[row], random_actions(spec, decisions, [row], rng))


def random_actions(spec, decisions, rows, rng):
    from mlagents_envs.base_env import ActionTuple

    continuous = rng.uniform(-1, 1, (len(rows), spec.continuous_size)).astype(np.float32)
    discrete = np.zeros((len(rows), spec.discrete_size), np.int32)
    for place, row in enumerate(rows):
        for branch in range(spec.discrete_size):
            allowed = np.flatnonzero(~decisions.action_mask[branch][row])
            discrete[place, branch] = allowed[rng.randint(len(allowed))]
    return ActionTuple(continuous=continuous, discrete=discrete)


def write_steps(record, path, decisions, terminals):
    for kind, steps in (("decision", decisions), ("terminal", terminals)):
        for sensor, observation in enumerate(steps.obs):
            assert observation.dtype == np.float32, observation.dtype
            record[f"{path}/{kind}/obs{sensor}"] = observation
        for name in ("reward", "agent_id", "group_id", "group_reward"):
            record[f"{path}/{kind}/{name}"] = np.asarray(getattr(steps, name))
    record[f"{path}/terminal/interrupted"] = terminals.interrupted
    for branch, mask in enumerate(decisions.action_mask or ()):
        assert mask.dtype == bool, mask.dtype
        record[f"{path}/decision/mask{branch}"] = mask


def describe(specs):
    """The specs as plain data."""
    return {
        name: {
            "sensors": [
                [list(s.shape), list(map(int, s.dimension_property)), s.observation_type.name, s.name]
                for s in spec.observation_specs
            ],
            "actions": [spec.action_spec.continuous_size, list(spec.action_spec.discrete_branches)],
        }
        for name, spec in specs.items()
    }


class Channels:
    """One of each kind that the published package has."""

    def __init__(self):
        from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
        from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
        from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel
        from mlagents_envs.side_channel.raw_bytes_channel import RawBytesChannel
        from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel

        self._engine = EngineConfigurationChannel()
        self._parameters = EnvironmentParametersChannel()
        self._properties = FloatPropertiesChannel()
        self._raw = RawBytesChannel(RAW_BYTES)
        self._stats = StatsSideChannel()
        self.all = [self._engine, self._parameters, self._properties, self._raw, self._stats]

    def talk(self, parameters):
        """Queued before the first reset, as programs do."""
        self._engine.set_configuration_parameters(time_scale=20.0, width=84, height=84, quality_level=1)
        for name, value in parameters.items():
            self._parameters.set_float_parameter(name, value)
        self._parameters.set_uniform_sampler_parameters("mass", 0.5, 1.5, 3)
        self._parameters.set_gaussian_sampler_parameters("wind", 0.0, 2.0, 4)
        self._parameters.set_multirangeuniform_sampler_parameters("light", [(0.0, 1.0), (2.0, 3.0)], 5)
        self._properties.set_property("gravity", -9.81)
        self.say_raw(bytes(range(256)))

    def say_raw(self, data):
        self._raw.send_raw_data(data)

    def write(self, record):
        for name, values in self._stats.get_and_reset_stats().items():
            record[f"stats/{name}"] = np.array([[value, aggregation.value] for value, aggregation in values])
        for name, value in self._properties.get_property_dict_copy().items():
            record[f"properties/{name}"] = np.array(value)
        messages = self._raw.get_and_clear_received_messages()
        record["raw"] = np.frombuffer(b"".join(map(bytes, messages)), np.uint8)


def environment_class(which):
    if which == "ours":
        from unity_bridge.environment import UnityEnvironment
    else:
        if which == "aliased":
            from unity_bridge.mlagents_alias import install

            install()
        from mlagents_envs.environment import UnityEnvironment
    return UnityEnvironment


def main(which, plan_path, out_path):
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)
    np.savez(out_path, **play(environment_class(which), plan))


if __name__ == "__main__":
    main(*sys.argv[1:])
