"""Selection and perturbation of members in population based training (Jaderberg et al. 2017)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from trainer_service.config.section import Section
from trainer_service.errors import UserError
from trainer_service.experiments.schedule import Segment
from trainer_service.experiments.space import Parameter, Space, Values

SHARE = 0.25
"""The share of members that is replaced after a generation, and the share of the best that replace them."""
RESAMPLED = 0.25
"""The probability that a perturbed parameter gets a random value instead of a neighboring one."""
FACTORS = (0.8, 1.2)
"""The factors by which numbers are perturbed."""
_SEEDS = 2**31
"""Seeds of a run are smaller."""


class Member(Section):
    """A member of a population in one generation."""

    source: int | None
    """Index of the member in the generation before that its run is a fork of; None in the first generation."""

    seed: int
    """Seed of the run in this generation."""

    values: Values = Field(default_factory=dict)
    """Values of the parameters in this generation, by path."""

    ended: bool = False
    """Whether its segment was trained, or failed."""

    step: int = 0
    """Agent steps at the end of the segment."""

    score: float | None = None
    """The score of the segment; None if there is none, such as for a failed run."""


Generation = list[Member]


def first_generation(space: Space, members: int, seed: int) -> Generation:
    """Returns members with random values of the space."""
    generator = _generator(seed, 0)
    return [
        Member(source=None, seed=_seed(seed, 0, index, members), values=space.sample(generator))
        for index in range(members)
    ]


def next_generation(space: Space, generations: Sequence[Generation], seed: int) -> Generation:
    """Returns the members after the newest generation: forks of its good ones, or their continuations.

    Raises:
        UserError: no member has a score.
    """
    number, newest = len(generations), generations[-1]
    generator = _generator(seed, number)
    following: Generation = []
    for index, source in enumerate(select([member.score for member in newest], generator)):
        values = newest[source].values
        if source != index:
            values = perturbed(space, values, generator)
        own_seed = _seed(seed, number, index, len(newest))
        following.append(Member(source=source, seed=own_seed, values=values))
    return following


def select(scores: Sequence[float | None], generator: random.Random) -> list[int]:
    """Returns the index of the member that each one continues as: its own, or a random one of the best.

    Truncation selection: the worst quarter is replaced by the best quarter, a failed member always.

    Raises:
        UserError: no member has a score.
    """
    ranked = ranking(scores)
    count = max(1, int(SHARE * len(scores)))
    best, worst = ranked[-count:], ranked[: min(count, len(ranked) - count)]
    chosen = list(range(len(scores)))
    for index, score in enumerate(scores):
        if score is None or index in worst:
            chosen[index] = generator.choice(best)
    return chosen


def ranking(scores: Sequence[float | None]) -> list[int]:
    """Returns the indices of the members that have a score, the best last. Raises UserError if none has."""
    scored = [(score, index) for index, score in enumerate(scores) if score is not None]
    if not scored:
        raise UserError(
            "population: no member has a score: expected summaries with ended episodes in every interval"
        )
    return [index for _, index in sorted(scored)]


def perturbed(space: Space, values: Mapping[str, Any], generator: random.Random) -> Values:
    """Returns values near the given ones. A parameter whose condition holds only now gets a random value."""

    def choose(path: str, parameter: Parameter) -> Any:
        if path not in values or generator.random() < RESAMPLED:
            return parameter.random(generator)
        return neighbor(parameter, values[path], generator)

    return space.draw(choose)


def neighbor(parameter: Parameter, value: Any, generator: random.Random) -> Any:
    """Returns a number times 0.8 or 1.2 within its range, or the choice before or after the value."""
    if not parameter.is_range:
        position = parameter.options.index(value) + generator.choice((-1, 1))
        return parameter.options[min(max(position, 0), len(parameter.options) - 1)]
    factor = generator.choice(FACTORS)
    moved = parameter.number(value * factor)
    if moved == value and (spacing := parameter.step or (1 if parameter.int else 0)):
        # A small whole number would stay for ever.
        moved = parameter.number(value + spacing if factor > 1 else value - spacing)
    return moved


def lineage(generations: Sequence[Generation], member: int) -> list[Member]:
    """Returns the members that a member of the newest generation descends from, the first one first, and itself."""
    line: list[Member] = []
    index: int | None = member
    for generation in reversed(generations):
        assert index is not None
        line.insert(0, generation[index])
        index = generation[index].source
    return line


def segments_of(line: Sequence[Member], ends: Sequence[int | None]) -> list[Segment]:
    """Returns the segments of a run that lives through a lineage. ends: the step where each generation ends."""
    return [
        Segment(until=end, settings={"env_settings.seed": member.seed, **member.values})
        for member, end in zip(line, ends, strict=False)
    ]


def _generator(seed: int, generation: int) -> random.Random:
    """The random stream of a generation, the same if the population is resumed."""
    return random.Random(f"{seed}/{generation}")


def _seed(seed: int, generation: int, index: int, members: int) -> int:
    """A seed for each run of each generation: with one seed, every generation would begin with the same episodes."""
    return (seed + generation * members + index) % _SEEDS
