"""A callback: ``--hooks best_return`` writes the best return of the run into its folder."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_service import Callback
from trainer_service.running.callbacks import EndedEpisodes, RunView


class BestReturn(Callback):
    """Keeps the best return of any episode, by behavior."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def on_episode_end(self, run: RunView, behavior: str, episodes: EndedEpisodes) -> None:
        """Compares the returns of the episodes that just ended."""
        if len(episodes.counted_returns):
            best = float(episodes.counted_returns.max())
            self.best[behavior] = max(best, self.best.get(behavior, -float("inf")))

    def on_update_end(self, run: RunView, behavior: str, metrics: Mapping[str, float]) -> None:
        """Shows the best return so far in TensorBoard."""
        if behavior in self.best:
            run.add_statistic(behavior, "Example/Best Return", self.best[behavior])

    def on_run_end(self, run: RunView) -> None:
        """Writes best_return.txt."""
        if run.folder.is_dir():
            lines = [f"{behavior}: {best:.3f}\n" for behavior, best in self.best.items()]
            (run.folder / "best_return.txt").write_text("".join(lines))
