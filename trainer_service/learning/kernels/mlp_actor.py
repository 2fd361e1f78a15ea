"""Actions of an MLP policy with fewer calls, equal bit for bit to the results of its modules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.learning.kernels import fast_paths_allowed
from trainer_service.learning.kernels.mlp_layout import LinearLayer, MlpLayout, layout_of
from trainer_service.learning.networks.encoders.normalizer import (
    LIMIT,
    ObservationNormalizer,
    VectorNormalizer,
)
from trainer_service.learning.networks.flat import FlatParameters
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.ops import distributions as dist
from unity_bridge.steps import Observation

_LIMIT = np.float32(LIMIT)


def actor_for(
    network: nn.Module,
    parameters: FlatParameters,
    normalizer: ObservationNormalizer,
    generator: torch.Generator,
) -> MlpActor | None:
    """Returns the fast actor of an MLP policy; None for any other network, or if fast paths are disabled.

    parameters: exactly this network's. generator: the random stream of the actions.
    """
    if not fast_paths_allowed() or parameters.vector.device.type != "cpu" or generator.device.type != "cpu":
        return None
    if type(normalizer) is not ObservationNormalizer or normalizer.has_sensor is not None:
        return None
    layout = layout_of(network, parameters)
    if layout is None or layout.lstms or (layout.mean is None and layout.logits is None):
        return None
    return MlpActor(layout, parameters.vector, normalizer, generator)


class MlpActor:
    """Decisions of an MLP policy, computed from the present vector of its parameters.

    For a dozen agents, the arithmetic takes less time than the function calls. Matrix products, Swish and sums stay in
    torch, on views of the vector, since their order of summation matters. The rest is in NumPy, whose calls cost less.
    Another reason for torch's products is that they respect its thread limit: NumPy's use all cores, and wait for them
    on a busy machine.
    """

    def __init__(
        self, layout: MlpLayout, vector: Tensor, normalizer: ObservationNormalizer, generator: torch.Generator
    ) -> None:
        def views(layer: LinearLayer) -> tuple[Tensor, Tensor]:
            weight = vector[layer.weight :][: layer.outputs * layer.inputs]
            return weight.view(layer.outputs, layer.inputs), vector[layer.bias :][: layer.outputs]

        self._normalizers = normalizer.of_sensors
        self._body = [views(layer) for layer in layout.actor]
        self._generator = generator
        self._mean = None if layout.mean is None else views(layout.mean)
        size = 0 if layout.mean is None else layout.mean.outputs
        first = layout.log_sigma or 0
        self._spread = _Spread(vector[first : first + size])
        self._logits = None if layout.logits is None else views(layout.logits)
        self._branches = layout.branches
        ends = list(itertools.accumulate(layout.branches))
        self._spans = [slice(end - size, end) for size, end in zip(layout.branches, ends, strict=True)]
        self._offsets = np.array(dist.choice_offsets(layout.branches), np.int64)

    def act(
        self,
        observations: Sequence[Observation],
        allowed_actions: NDArray[np.bool_],
        memories: NDArray[np.float32],
    ) -> Decisions | None:
        """Samples actions for M agents: one array [M, size] per sensor, bool [M, choices], [M, 0].

        Returns None if a sensor is not float32.
        """
        if any(sensor.dtype != np.float32 for sensor in observations):
            return None
        # Without a context of torch's: the vector and its views require no gradient.
        features = torch.from_numpy(self._inputs(observations))
        for weight, bias in self._body:
            features = nn.functional.silu(nn.functional.linear(features, weight, bias), inplace=True)
        continuous, of_numbers = self._numbers(features)
        choices, of_choices = self._choices(features, allowed_actions)
        if of_numbers is None or of_choices is None:
            log_probs = of_choices if of_numbers is None else of_numbers
        else:
            log_probs = of_numbers + of_choices
        return Decisions(continuous, choices, cast(NDArray[np.float32], log_probs), memories)

    def _inputs(self, observations: Sequence[Observation]) -> NDArray[np.float32]:
        """Normalized observations side by side. Shape [M, inputs]."""
        seen: list[NDArray[Any]] = [
            sensor if normalizer is None else _normalized(sensor, normalizer)
            for sensor, normalizer in zip(observations, self._normalizers, strict=True)
        ]
        together: NDArray[np.float32] = seen[0] if len(seen) == 1 else np.concatenate(seen, axis=1)
        return together

    def _numbers(self, features: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Samples continuous actions [M, C] before squashing, and their log-density [M], None for no dimensions."""
        if self._mean is None:
            return np.empty((len(features), 0), np.float32), None
        mean = nn.functional.linear(features, *self._mean)
        noise = torch.empty_like(mean).normal_(generator=self._generator)
        sigma, volume = self._spread.now()
        log_density: NDArray[np.float32] = (noise * noise).sum(dim=-1).numpy()
        log_density *= -0.5
        log_density -= volume
        return torch.addcmul(mean, noise, sigma).numpy(), log_density

    def _choices(
        self, features: Tensor, allowed_actions: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Samples a choice of each branch [M, branches] by the Gumbel-max trick, and their log-probability [M]."""
        choices = np.empty((len(features), len(self._branches)), np.int64)
        if self._logits is None:
            return choices, None
        everything = np.count_nonzero(allowed_actions) == allowed_actions.size
        log_choices = dist.masked_log_softmax(
            nn.functional.linear(features, *self._logits),
            None if everything else torch.from_numpy(allowed_actions),
            self._branches,
        )
        noise = torch.empty_like(log_choices).exponential_(generator=self._generator)
        known: NDArray[np.float32] = log_choices.numpy()
        scores = known - noise.log_().numpy()
        for branch, span in enumerate(self._spans):
            scores[:, span].argmax(axis=1, out=choices[:, branch])
        if len(self._spans) == 1:
            chosen = known[_counted(len(known)), choices[:, 0]]
            return choices, chosen
        chosen = known[_counted(len(known))[:, None], choices + self._offsets]
        log_probs: NDArray[np.float32] = torch.from_numpy(chosen).sum(dim=-1).numpy()
        return choices, log_probs


class _Spread:
    """σ of the continuous actions, and the logarithm of their density's normalizing constant."""

    def __init__(self, log_sigma: Tensor) -> None:
        """log_sigma: a view of the vector, [C]."""
        self._log_sigma = log_sigma
        self._array: NDArray[Any] = log_sigma.numpy()
        self._known = b"not yet"
        self._sigma = log_sigma
        self._volume = np.float32(0.0)

    def now(self) -> tuple[Tensor, np.float32]:
        """σ, [C], and Σ (ln σ + ½ ln 2π). Computed again only after an update."""
        if self._array.tobytes() != self._known:
            self._known = self._array.tobytes()
            self._sigma = self._log_sigma.exp()
            self._volume = np.float32(dist.gaussian_log_volume(self._log_sigma).item())
        return self._sigma, self._volume


@lru_cache(maxsize=64)
def _counted(rows: int) -> NDArray[np.int64]:
    """The numbers of rows, not to be changed."""
    return np.arange(rows)


def _normalized(observation: Observation, normalizer: VectorNormalizer) -> NDArray[np.float32]:
    """Returns the result of ``VectorNormalizer.forward``."""
    normalized: NDArray[np.float32] = observation - normalizer.shift.numpy()
    normalized *= normalizer.scale.numpy()
    np.minimum(normalized, _LIMIT, out=normalized)
    np.maximum(normalized, -_LIMIT, out=normalized)
    return normalized
