"""Version 2 of level-based foraging, for which EPyMARL's scores are published, by the library that has version 3.

Importing this module registers ``Foraging-…-v2`` with Gymnasium for each ``Foraging-…-v3``. In version 3 (lbforaging
2.0.0) the highest level of food is the sum of the three lowest levels of agents. Until version 2 it was one less,
because the older ``randint`` excludes its upper bound. So food that needs three agents at once is 44 % of all levels on
``10x10-3p-3f`` in version 3, and 7 % in version 2. Fields with ``coop`` are the same in both.

    mlagents-style learn lbf_idqn --run-id=v2 --env=gymma:benchmarks.scores.foraging_v2:Foraging-10x10-3p-3f-v2
"""

from __future__ import annotations

import gymnasium
import numpy as np
from lbforaging.foraging import ForagingEnv


class ForagingV2(ForagingEnv):  # type: ignore[misc]
    """The environment of version 3 with the food levels of version 2."""

    def spawn_food(self, max_num_food: int, min_levels: np.ndarray, max_levels: np.ndarray) -> None:
        """Places the food of an episode. max_levels: the highest levels in version 3, one for each food."""
        super().spawn_food(max_num_food, min_levels, max_levels if self.force_coop else max_levels - 1)


for _name, _spec in list(gymnasium.registry.items()):
    if _name.startswith("Foraging-") and _name.endswith("-v3"):
        gymnasium.register(_name.removesuffix("3") + "2", ForagingV2, kwargs=_spec.kwargs)
