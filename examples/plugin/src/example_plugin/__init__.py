"""A template for plugins of trainer-service.

This file is imported whenever a configuration names the plugin, so it imports no torch: the factories are named as
text, and loaded when something is trained.
"""

from example_plugin.settings import A2CSettings, EffortSettings
from trainer_service.plugins import AlgorithmPlugin, RewardSignalPlugin

A2C_PLUGIN = AlgorithmPlugin(A2CSettings, "example_plugin.a2c:A2C", api=2)
EFFORT_PLUGIN = RewardSignalPlugin(EffortSettings, "example_plugin.effort:EffortReward", api=2)
