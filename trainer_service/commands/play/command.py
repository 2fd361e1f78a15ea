"""The commands ``evaluate`` and ``play``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trainer_service.commands.common.command import Flag, FlagsOf, InGroup, Settings
from trainer_service.commands.common.flags import Browser, PagePort
from trainer_service.commands.common.output import CommandResult, note, progress_printer, say
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.commands.play.flags import playing_of, stops_play
from trainer_service.commands.play.matches import play_matches
from trainer_service.commands.play.playing import play_episodes
from trainer_service.commands.play.score_text import score_lines
from trainer_service.config import parse_player
from trainer_service.errors import Interrupted, UserError
from trainer_service.running.runs.folder import RunFolder

if TYPE_CHECKING:
    from trainer_service.learning.rollout.episode_scores import EndedEpisode, Score

_PAGE = InGroup("the page of --against human")


def evaluate(
    run_id: Annotated[str, Flag(
        "a run, by id or folder, RUN_ID@STEP or RUN_ID@best; with --against any player", "RUN_ID")],
    *,
    against: Annotated[Sequence[str] | None, Flag(
        "games against RUN_ID, RUN_ID@STEP, RUN_ID@best, FILE.safetensors, random, expert (the scene's own) or human "
        "(you, by keyboard or gamepad on a local page)", "PLAYER", nargs="+")] = None,
    port: Annotated[PagePort, _PAGE] = 0,
    browser: Annotated[Browser, _PAGE] = True,
    side: Annotated[str | None, Flag(
        "with --against: play this team or behavior only (default: all sides in turn)", "SIDE")] = None,
    cross_play: Annotated[bool, Flag("with --against: everyone plays against everyone else")] = False,
    env: Annotated[str | None, Flag(
        "where to play (default: what the run was trained on, which keeps its --env-args, too)", "ENV")] = None,
    checkpoint: Annotated[str, Flag(
        "last, best (of the run's evaluations), a step, or a file (default last)", "WHICH")] = "last",
    episodes: Annotated[int, Flag(
        "of agents, per behavior; with --against games of each pair (default 100)", "N", at_least=1)] = 100,
    **how: Annotated[Any, FlagsOf(playing_of)],
) -> CommandResult:  # fmt: skip
    """Plays a frozen policy and reports its returns."""
    how |= {"env": env, "episodes": episodes}
    if against is not None:
        page = {"port": port, "browser": browser}
        return play_matches(
            run_id, against, checkpoint=checkpoint, side=side, cross_play=cross_play, page=page, **how
        )
    run_id, checkpoint = _run_alone(run_id, checkpoint, side=side is not None, cross_play=cross_play)
    run = RunFolder.read(how["results_dir"], run_id)
    how |= {"run": run, "checkpoint": checkpoint, "progress": progress_printer()}
    with stops_play() as check_stop, playing_of(**how, check_stop=check_stop) as playing:
        player, scores = play_episodes(playing)
    scores, interrupted = _ended(scores, episodes)
    steps = {name: player.policies[name].step for name in scores}
    results = {name: score.to_json() for name, score in scores.items()}
    lines = (
        line
        for name, result in results.items()
        for line in score_lines(f"{name} (step {steps[name]})", result)
    )
    step = max(steps.values(), default=0)
    value = {"run_id": run_id, "step": step, "behaviors": results, "interrupted": interrupted}
    return CommandResult(value, lines, Interrupted.exit_code if interrupted else 0)


def play(
    env: Annotated[str, Flag("where to play: an executable, sim:NAME, gym:ID, pettingzoo:MODULE …", "ENV")],
    *,
    policy: Annotated[str, Flag(
        "random, expert (the scene's own), a run, RUN_ID@STEP, RUN_ID@best or FILE.safetensors (default random)",
        "PLAYER")] = "random",
    episodes: Annotated[int, Flag("of agents, per behavior (default 5)", "N", at_least=1)] = 5,
    json: bool = False,
    **how: Annotated[Any, FlagsOf(playing_of), Settings("time_scale", "no_graphics")],
) -> CommandResult:  # fmt: skip
    """Plays episodes of an environment with random actions, with the scene's own expert or with a run's policies.
    Prints a line for each episode and the scores; nothing is written but a film that you ask for.
    """
    settings = {name: SETTINGS[name] for name in ("time_scale", "no_graphics")}
    own = nested({name: how.pop(name) for name in settings if name in how}, settings)
    player = _player(policy, how["results_dir"], deterministic=how["deterministic"])
    played: dict[str, list[dict[str, Any]]] = {}

    def show(behavior: str, episode: EndedEpisode) -> None:
        played.setdefault(behavior, []).append(episode.to_json())
        if not json:
            say(_episode_text(behavior, episode))

    how |= {"episodes": episodes, "settings": own, **player}
    with stops_play() as check_stop, playing_of(env, **how, check_stop=check_stop) as playing:
        _, scores = play_episodes(playing, on_episode=show)
    scores, interrupted = _ended(scores, episodes)
    results = {name: score.to_json() for name, score in scores.items()}
    of_all = {name: {**result, "played": played.get(name, [])} for name, result in results.items()}
    lines = (line for name, result in results.items() for line in score_lines(name, result))
    value = {"env": env, "policy": policy, "behaviors": of_all, "interrupted": interrupted}
    return CommandResult(value, lines, Interrupted.exit_code if interrupted else 0)


def _ended(scores: Mapping[str, Score], wanted: int) -> tuple[dict[str, Score], bool]:
    """The scores of behaviors with an ended episode, and whether the play was interrupted before all had ended.

    Raises Interrupted where none had.
    """
    ended = [len(score.returns) for score in scores.values()]
    if not any(ended):
        raise Interrupted("interrupted before any episode ended")
    interrupted = min(ended) < wanted
    if interrupted:
        note(
            f"Interrupted after {min(ended)} of {wanted} episodes: the scores are of those that ended, of which short "
            "ones end first."
        )
    return {name: score for name, score in scores.items() if score.returns}, interrupted


def _run_alone(run_id: str, checkpoint: str, **of_games: bool) -> tuple[str, str]:
    """The run id and checkpoint of ``RUN_ID@WHICH``. Raises UserError where there is no run to evaluate alone."""
    name = parse_player(run_id)
    for flag, given in of_games.items():
        if given:
            raise UserError(f"--{flag.replace('_', '-')}: requires --against")
    if name.run_id is None:
        raise UserError(
            f"'{name.text}' is evaluated in games only: say --against, give the run id, or use play"
        )
    if name.run_id == name.text:
        return name.run_id, checkpoint
    if checkpoint != "last":
        raise UserError(f"--checkpoint: '{name.text}' says already which")
    return name.run_id, name.which


def _player(policy: str, results_dir: Path, *, deterministic: bool) -> dict[str, Any]:
    """The fields of ``Playing`` that say who plays. Raises UserError where there is no such run."""
    name = parse_player(policy)
    if name.run_id is not None:
        try:
            return {"run": RunFolder.read(results_dir, name.run_id), "checkpoint": name.which}
        except UserError as error:
            raise UserError(f"--policy: expected random, expert or a run, but {error}") from None
    if not deterministic and not name.is_file:
        raise UserError(f"--stochastic: not allowed for '{name.text}'; it is for the policy of a run")
    return {"players": (name,)}


def _episode_text(behavior: str, episode: EndedEpisode) -> str:
    outcome = "time limit" if episode.truncated else "terminated"
    return (
        f"{behavior}, episode {episode.number}: return {episode.episode_return:.3f}, length {episode.length}, "
        f"{'cut at the limit of steps' if episode.cut else outcome}"
    )
