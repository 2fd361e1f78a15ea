"""The physics of ``sim:spread``: discs that push each other aside, as in mpe2's simple_spread 1.1.1."""

from __future__ import annotations

import numpy as np

from unity_bridge.arrays import Floats, Integers

STEP_S = 0.1
DAMPING = 0.25
FORCE = 5.0
AGENT_RADIUS = 0.15
LANDMARK_RADIUS = 0.05
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3
TOUCHING = 2 * AGENT_RADIUS

PUSHES: Floats = FORCE * np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
"""The force of each choice: none, left, right, down, up."""


class SpreadWorld:
    """C copies of N agents (discs of radius 0.15 and mass 1) and N landmarks, in a plane without borders.

    A step of dt = 0.1 follows mpe2, in float64 and in its order: positions move with the old velocities, so a
    force is felt in the positions one step late.

        F_i = u_i + Σ_{j≠i} 100 · pen · (p_i − p_j)/d,   pen = k·log(1 + exp((0.3 − d)/k)),   k = 0.001
        p_i ← p_i + dt·v_i
        v_i ← 0.75·v_i + dt·F_i

    OpenAI's original and older forks swap the last two lines, which makes the task easier.
    """

    def __init__(self, copies: int, agents: int) -> None:
        self.positions: Floats = np.zeros((copies, agents, 2))
        self.velocities: Floats = np.zeros((copies, agents, 2))
        self.landmarks: Floats = np.zeros((copies, agents, 2))
        self.differences: Floats = np.zeros((copies, agents, agents, 2))
        """p_j − p_i at [c, i, j]."""
        self.distances: Floats = np.zeros((copies, agents, agents))
        """‖p_j − p_i‖ at [c, i, j]; infinity for i = j."""
        self._self = np.arange(agents)

    def place(self, positions: Floats, landmarks: Floats) -> None:
        """Places agents at rest, and landmarks. Shapes [C, N, 2]."""
        self.positions[:] = positions
        self.landmarks[:] = landmarks
        self.velocities[:] = 0
        self._measure()

    def advance(self, pushes: Floats) -> None:
        """One step under the agents' own forces. Shape [C, N, 2]."""
        near = TOUCHING - self.distances
        overlap = CONTACT_MARGIN * np.logaddexp(0, near / CONTACT_MARGIN)
        strength = CONTACT_FORCE * overlap / self.distances
        contact = np.einsum("cij,cijk->cik", strength, self.differences)
        self.positions += STEP_S * self.velocities
        self.velocities *= 1 - DAMPING
        self.velocities += STEP_S * (pushes - contact)
        self._measure()

    def to_landmarks(self) -> Floats:
        """l_k − p_i at [c, i, k]. Shape [C, N, N, 2]."""
        ways: Floats = self.landmarks[:, None, :, :] - self.positions[:, :, None, :]
        return ways

    def uncovered(self) -> Floats:
        """The sum over landmarks of the distance to the nearest agent. Shape [C]."""
        distances: Floats = lengths(self.to_landmarks()).min(axis=1).sum(axis=1)
        return distances

    def colliding(self) -> Integers:
        """Number of other agents that each agent overlaps. Shape [C, N]."""
        others: Integers = np.count_nonzero(self.distances < TOUCHING, axis=2)
        return others

    def _measure(self) -> None:
        np.subtract(self.positions[:, None], self.positions[:, :, None], out=self.differences)
        self.distances[:] = lengths(self.differences)
        self.distances[:, self._self, self._self] = np.inf


def lengths(vectors: Floats) -> Floats:
    """The lengths of vectors in the plane. Shape [..., 2] to [...]."""
    x, y = vectors[..., 0], vectors[..., 1]
    result: Floats = np.sqrt(x * x + y * y)
    return result
