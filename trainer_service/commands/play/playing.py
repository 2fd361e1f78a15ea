"""One play of frozen policies: its inputs in a record, and its episodes or games."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.command import require_at_least
from trainer_service.commands.common.environments import ChosenEnvironment
from trainer_service.commands.common.flags import EVALUATION_SEED
from trainer_service.commands.common.trained_run import (
    one_thread,
    options_of,
    simulator_for,
)
from trainer_service.commands.play.match_results import Match
from trainer_service.config import PlayerName, RunOptions
from trainer_service.running.evaluation.evaluate import score
from trainer_service.running.evaluation.loop import BridgeLike, EpisodeLoop
from trainer_service.running.evaluation.match import play_match
from trainer_service.running.evaluation.players import Player, actors_of, load_player, with_expert
from trainer_service.running.policy import Policy, chosen_checkpoints
from trainer_service.running.runs.layout import RESULTS
from trainer_service.running.training.compute import choose_device

if TYPE_CHECKING:
    from trainer_service.commands.play.films import FilmOptions
    from trainer_service.learning.rollout.episode_scores import EndedEpisode, Score
    from trainer_service.running.callbacks import SimulatorStep
    from trainer_service.running.evaluation.simulator import EvaluationSimulator
    from trainer_service.running.runs.folder import RunFolder

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """The inputs of a play: the players, where they play, how long, and how they act."""

    environment: ChosenEnvironment

    run: RunFolder | None = None
    """The run whose options and lessons the simulator gets; None for the defaults."""

    players: Sequence[PlayerName] = ()
    """Players by name; empty for the policies of ``run``."""

    checkpoint: str | int = "last"
    """Which policies of ``run`` play."""

    episodes: int
    """Of each behavior, or games of each pair of players."""

    max_episode_steps: int | None = None
    """Steps of an agent after which its episode is cut; None for no limit."""

    side: str | None = None
    """The only side of a game that the first player has; None for each in turn."""

    deterministic: bool = True
    """Whether policies act by their likeliest actions instead of drawn ones."""

    seed: int = EVALUATION_SEED
    """The seed of the simulator and of drawn actions."""

    device: str = "cpu"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Override the options of the run, nested as in a file."""

    results_dir: str | Path = RESULTS
    """The folder of the runs that players are of."""

    film: FilmOptions | None = None
    """A film to record; None for none."""

    progress: Callable[[int, int], None] = lambda done, wanted: None
    """Called with how many episodes of how many are done."""

    check_stop: Callable[[], None] = lambda: None
    """Called at least twice a second; what it raises ends the play."""

    def __post_init__(self) -> None:
        require_at_least(1, **{"--episodes": self.episodes, "--max-episode-steps": self.max_episode_steps})

    @property
    def options(self) -> RunOptions:
        """Options of the simulator."""
        return options_of(self.run, self.settings)

    def simulator(self) -> EvaluationSimulator:
        """The simulator to play in.

        Raises:
            UserError: nowhere to play, no expert there, or a film that it cannot record.
            LaunchError: there is no such program.
        """
        simulator = simulator_for(self.environment, self.run, seed=self.seed, settings=self.settings)
        if any(name.is_expert for name in self.players):
            simulator = replace(simulator, command=with_expert(simulator.command))
        if self.film is not None:
            simulator = replace(simulator, film=self.film.arguments(simulator.command))
        for where in simulator.describe():
            _logger.info("%s", where)
        return simulator

    def load(self) -> list[Player]:
        """Loads the players. Raises UserError where there is no such run, checkpoint or device."""
        device = str(choose_device(self.device))
        if self.run is not None and not self.players:
            paths = chosen_checkpoints(self.run.path, self.checkpoint)
            policies = {
                name: Policy.load(path, device=device, seed=self.seed) for name, path in paths.items()
            }
            run_id = self.run.path.name
            name = PlayerName(f"{run_id}@{self.checkpoint}", run_id, str(self.checkpoint))
            return [Player(name, policies, self.seed)]
        return [
            load_player(name, self.results_dir, device=device, seed=self.seed + number)
            for number, name in enumerate(self.players)
        ]

    @contextmanager
    def loop(self, simulator: EvaluationSimulator, what: str = "episode") -> Iterator[EpisodeLoop]:
        """The loop of episodes or games on a simulator, which runs as long as the context lasts."""
        with simulator.open() as bridge, one_thread():
            yield self.loop_on(bridge, what)

    def loop_on(self, simulators: BridgeLike, what: str = "episode") -> EpisodeLoop:
        """The loop of episodes or games on simulators that run already."""
        return EpisodeLoop(
            simulators,
            self.max_episode_steps,
            what=what,
            progress=self.progress,
            check_stop=self.check_stop,
        )


def play_episodes(
    playing: Playing,
    *,
    on_step: Callable[[str, SimulatorStep], None] | None = None,
    on_episode: Callable[[str, EndedEpisode], None] | None = None,
) -> tuple[Player, dict[str, Score]]:
    """Plays the episodes of one player. Returns the player and its scores by behavior name.

    Where a callback stops the play, the scores are those of the episodes that ended before.

    on_step, on_episode: see ``trainer_service.running.evaluation.evaluate.score``.

    Raises:
        UserError: no such player, nowhere to play, or an environment that the player does not fit.
        BridgeError: the simulator failed.
    """
    with playing.loop(playing.simulator()) as loop:
        (player,) = playing.load()
        actors = actors_of(player, deterministic=playing.deterministic)
        scores = score(
            loop,
            actors,
            episodes=playing.episodes,
            on_step=on_step,
            on_episode=on_episode,
            keep_stopped=True,
        )
        return player, scores


def play_games(playing: Playing, loop: EpisodeLoop, player: Player, opponent: Player) -> Match:
    """Plays the games of two players. Raises UserError and BridgeError as ``play_match``."""
    games = play_match(
        loop,
        player,
        opponent,
        games=playing.episodes,
        side=playing.side,
        teams=playing.options.teams,
        deterministic=playing.deterministic,
    )
    return Match(player, opponent, games)
