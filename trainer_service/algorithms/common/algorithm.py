"""The earlier module of ``Learner`` and its ``Compute``, for plugins of interface 1."""

from trainer_service.algorithms.common.learner import Compute, Metrics

__all__ = ["Compute", "Metrics"]
