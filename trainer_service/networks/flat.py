"""All parameters of a network as one vector, their gradients as another; Adam and target networks on such vectors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from trainer_service.networks.shard import SINGLE_RANK, Shard

Network = TypeVar("Network", bound=nn.Module)


class FlatParameters:
    """Rebinds parameters to slices of one vector, so that what is done to all of them is done once.

    Zeroing, clipping and Adam then cost a few operations instead of a few per tensor, which matters where a
    minibatch's own arithmetic takes less time than the bookkeeping around it. The parameters stay what they
    are for everybody else: state dicts, forward passes and autograd do not notice.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], shard: Shard = SINGLE_RANK) -> None:
        """The parameters must be of one type, on the device where they will stay. shard: see ``reduce_gradient``."""
        parameters = list(parameters)
        self.shard = shard
        """Which rows of each minibatch this learner rank computes."""
        self.vector = torch.cat([parameter.detach().flatten() for parameter in parameters])
        """Shape [all parameters]."""
        self.gradient = torch.zeros_like(self.vector)
        """Shape [all parameters]."""
        start = 0
        for parameter in parameters:
            span = slice(start, start + parameter.numel())
            parameter.data = self.vector[span].view_as(parameter)
            # Autograd adds to a gradient that is there, in place: it never replaces the slice.
            parameter.grad = self.gradient[span].view_as(parameter)
            start = span.stop

    def zero_gradient(self) -> None:
        """Sets the gradient to zero, before each backward pass."""
        self.gradient.zero_()

    def reduce_gradient(self, share: float = 1.0) -> None:
        """Adds the gradients of all learner ranks up, each weighted by its share of the minibatch: one all-reduce."""
        if self.shard.world > 1:
            self.shard.add_up(self.gradient.mul_(share))

    def clip_gradient(self, max_norm: float) -> None:
        """Scales the gradient down to ``max_norm`` where it is longer, without asking the device how long."""
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))


class FlatAdam:
    """Adam, algorithm 1 of Kingma & Ba 2015 (arXiv:1412.6980), on a vector: torch's kernel without its optimizer.

    One pass over the numbers instead of seven, which counts for pictures' networks; and without the optimizer's
    bookkeeping, which for vectors' costs more than the arithmetic.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        """weight_decay: λ of an L2 penalty λ‖θ‖²/2, added to the gradient as torch.optim.Adam does; 0 for none."""
        self._parameters = parameters
        self.betas = betas
        """β₁ and β₂."""
        self.epsilon = epsilon
        """ε, added to √v̂."""
        self.weight_decay = weight_decay
        """λ of the L2 penalty."""
        self.steps = torch.zeros((), device=parameters.vector.device)
        """Steps taken, as a float32 scalar."""
        self.mean = torch.zeros_like(parameters.vector)
        """m, as the parameters lie in their vector."""
        self.square = torch.zeros_like(parameters.vector)
        """v, likewise."""

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Moves the parameters against their gradient.

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
        """Returns m and v of one parameter, in its shape, as views that may be written."""
        span = slice(parameter.storage_offset(), parameter.storage_offset() + parameter.numel())
        return self.mean[span].view_as(parameter), self.square[span].view_as(parameter)

    def state_dict(self) -> dict[str, Tensor | int]:
        """Steps taken and both moments."""
        return {"steps": int(self.steps), "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: Mapping[str, Tensor | int]) -> None:
        """Continues from there. Raises KeyError or RuntimeError where it does not fit."""
        steps, mean, square = state["steps"], state["mean"], state["square"]
        self.steps.fill_(int(steps))
        self.mean.copy_(torch.as_tensor(mean))
        self.square.copy_(torch.as_tensor(square))


class UpdateRule(Protocol):
    """What makes steps of parameters against their gradient, with a state of its own."""

    def step(self, learning_rate: float) -> None:
        """Moves the parameters against the gradient that they have."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as tensors and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there. Raises KeyError, RuntimeError or ValueError where it does not fit."""


class FlatOptimizer:
    """Parameters as one vector, with what makes their steps, for a learner that has several of them."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        shard: Shard = SINGLE_RANK,
        make_rule: Callable[[list[nn.Parameter]], UpdateRule] | None = None,
    ) -> None:
        """epsilon, weight_decay: as for ``FlatAdam``. shard: as for ``FlatParameters``.

        make_rule: makes another rule than Adam's, of the parameters in their vector.
        """
        self._list = list(parameters)
        self.parameters = FlatParameters(self._list, shard)
        self.rule: UpdateRule = (
            FlatAdam(self.parameters, epsilon=epsilon, weight_decay=weight_decay)
            if make_rule is None
            else make_rule(self._list)
        )
        """What makes the steps."""

    @property
    def adam(self) -> FlatAdam:
        """The rule, for code that works with Adam's moments. Raises TypeError where it is another one."""
        if not isinstance(self.rule, FlatAdam):
            raise TypeError(f"expected Adam, got {self.rule!r}")
        return self.rule

    def minimize(self, loss: Tensor, rate: float, max_norm: float | None, share: float = 1.0) -> None:
        """Makes one step against the gradient of ``loss`` by these parameters, and by no others.

        share: of the minibatch that the loss is a mean of, where each learner rank has a part.
        """
        self.parameters.zero_gradient()
        loss.backward(inputs=self._list)  # type: ignore[no-untyped-call]  # torch has no types here
        self.parameters.reduce_gradient(share)
        if max_norm is not None:
            self.parameters.clip_gradient(max_norm)
        self.rule.step(rate)

    @contextmanager
    def held_still(self) -> Iterator[None]:
        """A context for a pass through these parameters that shall not move them: it spares their gradient."""
        for parameter in self._list:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in self._list:
                parameter.requires_grad_(True)

    def apply_gradient(self, gradient: Tensor, rate: float, share: float = 1.0) -> None:
        """Makes one step against a gradient that is known. share: as for ``minimize``."""
        self.parameters.gradient.copy_(gradient)
        self.parameters.reduce_gradient(share)
        self.rule.step(rate)


class TargetNetwork(Generic[Network]):
    """A target network: a copy that follows a network slowly, for stable targets."""

    def __init__(self, network: Network) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._vector = FlatParameters(self.network.parameters()).vector

    def soft_update(self, online: FlatParameters, tau: float) -> None:
        """θ' ← θ' + τ (θ − θ'); with a τ of 1 a copy, with 0 nothing. online: of the network that it is a copy of."""
        if tau == 1.0:
            self._vector.copy_(online.vector)
        elif tau:
            self._vector.lerp_(online.vector, tau)
