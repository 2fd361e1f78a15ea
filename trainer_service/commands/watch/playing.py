"""Endless play for the page: of a run's policies, or of another player."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_service.commands.watch.shown_scene import PersonActors, ShownScene
from trainer_service.commands.watch.sources import Acting, RunSource
from trainer_service.commands.watch.stage import About, Stage
from trainer_service.errors import UserError
from trainer_service.running.collection.heterogeneous_groups import HeterogeneousGroups
from trainer_service.running.evaluation.evaluate import PolicyActors
from trainer_service.running.policy import Policy
from unity_bridge.server.bridge import Tick
from unity_bridge.simulators.scene import Scene
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import BehaviorSpec


class EndlessPlay:
    """The policies that act in the scene of a page, replaced whenever the page wants others."""

    def __init__(self, stage: Stage, acting: Acting, run: RunSource | None) -> None:
        """acting: who acts at first. run: has the checkpoints that the page may ask for; None for no run."""
        self.acting = acting
        self._stage = stage
        self._run = run
        self._actors: PolicyActors | None = None
        self._groups = HeterogeneousGroups({})
        self._shown: ShownScene | None = None
        self._specs: Mapping[str, BehaviorSpec] = {}
        stage.every_second(self._look_at_run)
        stage.show({"policy": acting.name})

    def policy_of(self, behavior_id: str) -> Policy | None:
        """The policy that acts for a behavior id now, if there is one."""
        return self.acting.policy_of(behavior_id)

    def play(self, shown: ShownScene | None, scene: Scene | None) -> None:
        """Plays until the page is closed. None: there is no picture, and the run's curve is all that is shown.

        Raises:
            StageClosed: the page is closed.
            UserError: an environment that the policies do not fit.
            SceneError: the scene failed.
        """
        if shown is None or scene is None:
            while True:
                self._stage.wait(None)
        self._shown, self._specs = shown, dict(scene.behaviors)
        self._use(self.acting)
        while True:
            for tick in shown.receive(0.0):
                assert isinstance(tick, Tick)
                assert self._actors is not None
                merged = self._groups.merge(Tick(0, {}, tick.steps))
                shown.reply(0, self._groups.split(merged, self._actors.act(merged)))

    def _use(self, acting: Acting) -> None:
        """Lets others act from now on. Raises UserError where they do not fit."""
        if self._shown is not None:
            groups = HeterogeneousGroups(acting.actors.groups)
            actors = PersonActors(acting.actors, self._stage.person, self._shown)
            actors.declare(groups.merge(Tick(0, self._specs, {})))
            self._actors, self._groups = actors, groups
        self.acting = acting
        self._stage.show({"policy": acting.name, "note": ""})

    def _look_at_run(self) -> None:
        if self._run is None:
            return
        wanted = self._stage.wanted_checkpoint()
        try:
            acting = self._run.load(wanted) if wanted else self._run.newer() if self._stage.follows else None
            if acting is not None:
                self._use(acting)
        except UserError as error:
            folder = self._run.folder
            self._stage.show({"note": str(error).replace(str(folder), folder.name)})
        self._stage.show({"curve": self._run.curve(), "progress": self._run.progress()})


def about(scene: Scene | None, env: str | None, *, has_run: bool) -> About:
    """The properties of a scene for the page; None for a program that shows itself."""
    if scene is None:
        return About(env or "", has_scene=False, has_run=has_run)
    actions = {name: spec.action_spec for name, spec in scene.behaviors.items()}
    inner = getattr(getattr(getattr(scene, "environment", None), "env", None), "unwrapped", None)
    meanings: list[str] = getattr(inner, "get_action_meanings", list)()
    marks = isinstance(scene, ArrayScene) and (scene.has_groups or scene.copies > 1)
    return About(env or "", actions, meanings, marks, has_run=has_run)
