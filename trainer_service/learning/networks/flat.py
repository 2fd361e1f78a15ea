"""All parameters of a network as one vector, with one gradient vector; Adam and target networks on such vectors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from trainer_service.learning.networks.shard import SINGLE_RANK, Shard

NetworkT = TypeVar("NetworkT", bound=nn.Module)


BETAS = 0.9, 0.999
"""β₁ and β₂ of Adam."""


class FlatParameters:
    """Rebinds parameters to slices of one vector, so that one operation changes all of them.

    Zeroing, clipping and Adam then cost a few operations instead of a few per tensor. This matters if a minibatch's
    arithmetic takes less time than its overhead. State dicts, forward passes and autograd work as before.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], shard: Shard = SINGLE_RANK) -> None:
        """The parameters must have one dtype and be on their final device. shard: see ``reduce_gradient``."""
        parameters = list(parameters)
        self.shard = shard
        """This learner rank's rows of each minibatch."""
        self.vector = torch.cat([parameter.detach().flatten() for parameter in parameters])
        """Shape [all parameters]."""
        self.gradient = torch.zeros_like(self.vector)
        """Shape [all parameters]."""
        start = 0
        for parameter in parameters:
            span = slice(start, start + parameter.numel())
            parameter.data = self.vector[span].view_as(parameter)
            # Autograd adds to an existing gradient in place: it never replaces the slice.
            parameter.grad = self.gradient[span].view_as(parameter)
            start = span.stop

    def reduce_gradient(self, share: float = 1.0, max_norm: float | None = None) -> None:
        """Sums the gradients of all learner ranks, weighted by their shares of the minibatch, with one all-reduce.

        max_norm: the sum is scaled to at most this norm, without waiting for the device; None leaves it unscaled.
        """
        if self.shard.world > 1:
            self.shard.add_up(self.gradient.mul_(share))
        if max_norm is not None:
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))


class FlatAdam:
    """Adam, algorithm 1 of Kingma & Ba 2015 (arXiv:1412.6980), on a vector: torch's kernel without its optimizer.

    It makes one pass over the numbers instead of seven, which matters for picture networks. It avoids the optimizer's
    overhead, which for small networks costs more than the arithmetic.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        *,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = BETAS,
    ) -> None:
        """weight_decay: λ of an L2 penalty λ‖θ‖²/2, added to the gradient like torch.optim.Adam; 0 for none."""
        self._parameters = parameters
        self.betas = betas
        """β₁ and β₂."""
        self.epsilon = epsilon
        """ε, added to √v̂."""
        self.weight_decay = weight_decay
        """λ of the L2 penalty."""
        self.steps = torch.zeros((), device=parameters.vector.device)
        """Number of steps, as a float32 scalar."""
        self.mean = torch.zeros_like(parameters.vector)
        """m, in the order of the parameters' vector."""
        self.square = torch.zeros_like(parameters.vector)
        """v, in the same order."""

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Makes one step of Adam with the present gradient.

        g ← g + λ θ ;  m ← β₁ m + (1−β₁) g ;  v ← β₂ v + (1−β₂) g² ;  θ ← θ − α m̂ / (√v̂ + ε)
        """
        beta_1, beta_2 = self.betas
        adam(
            [self._parameters.vector],
            [self._parameters.gradient],
            [self.mean],
            [self.square],
            [],
            [self.steps],
            fused=True,
            amsgrad=False,
            beta1=beta_1,
            beta2=beta_2,
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=self.epsilon,
            maximize=False,
        )

    def moments(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
        """Returns m and v of one parameter, in its shape, as writable views."""
        span = slice(parameter.storage_offset(), parameter.storage_offset() + parameter.numel())
        return self.mean[span].view_as(parameter), self.square[span].view_as(parameter)

    def state_dict(self) -> dict[str, Tensor | int]:
        """Number of steps, and both moments."""
        return {"steps": int(self.steps), "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: Mapping[str, Tensor | int]) -> None:
        """Restores the state. Raises KeyError or RuntimeError if it does not fit."""
        steps, mean, square = state["steps"], state["mean"], state["square"]
        self.steps.fill_(int(steps))
        self.mean.copy_(torch.as_tensor(mean))
        self.square.copy_(torch.as_tensor(square))


class UpdateRule(Protocol):
    """An update rule of parameters by their gradient, with its own state."""

    def step(self, learning_rate: float) -> None:
        """Makes one step with the parameters' present gradient."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Raises KeyError, RuntimeError or ValueError if it does not fit."""


class FlatOptimizer:
    """Parameters as one vector with their update rule, for learners with several optimizers."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = BETAS,
        shard: Shard = SINGLE_RANK,
        make_rule: Callable[[list[nn.Parameter]], UpdateRule] | None = None,
    ) -> None:
        """epsilon, weight_decay, betas: as in ``FlatAdam``. shard: as in ``FlatParameters``.

        make_rule: makes another rule than Adam, for the parameters in their vector.
        """
        self._list = list(parameters)
        self.parameters = FlatParameters(self._list, shard)
        self.rule: UpdateRule = (
            FlatAdam(self.parameters, epsilon=epsilon, weight_decay=weight_decay, betas=betas)
            if make_rule is None
            else make_rule(self._list)
        )
        """The update rule."""

    @property
    def adam(self) -> FlatAdam:
        """The rule, for code that uses Adam's moments. Raises TypeError if it is not Adam."""
        if not isinstance(self.rule, FlatAdam):
            raise TypeError(f"expected Adam, got {self.rule!r}")
        return self.rule

    def minimize(self, loss: Tensor, rate: float, max_norm: float | None, share: float = 1.0) -> None:
        """Makes one step with the gradient of ``loss`` by these parameters only.

        share: weight of the loss in the mean of the minibatch, of which each learner rank has a part.
        """
        self.parameters.gradient.zero_()
        loss.backward(inputs=self._list)  # type: ignore[no-untyped-call]  # torch has no types here
        self.parameters.reduce_gradient(share, max_norm)
        self.rule.step(rate)

    @contextmanager
    def held_still(self) -> Iterator[None]:
        """A context for a pass through these parameters that must not change them. It skips their gradient."""
        for parameter in self._list:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in self._list:
                parameter.requires_grad_(True)

    def apply_gradient(self, gradient: Tensor, rate: float, share: float = 1.0) -> None:
        """Makes one step with a known gradient. share: as in ``minimize``."""
        self.parameters.gradient.copy_(gradient)
        self.parameters.reduce_gradient(share)
        self.rule.step(rate)


class TargetNetwork(Generic[NetworkT]):
    """A target network: a copy that slowly follows a network, for stable targets."""

    def __init__(self, network: NetworkT) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.parameters = FlatParameters(self.network.parameters())

    def soft_update(self, online: FlatParameters, tau: float) -> None:
        """θ' ← θ' + τ (θ − θ'). τ = 1 copies, τ = 0 changes nothing. online: parameters of the followed network."""
        if tau == 1.0:
            self.parameters.vector.copy_(online.vector)
        elif tau:
            self.parameters.vector.lerp_(online.vector, tau)
