"""The low-level Python API of ML-Agents on one simulator."""

from unity_bridge.environment.unity_environment import UnityEnvironment

__all__ = ["UnityEnvironment"]
