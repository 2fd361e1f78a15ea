"""Breaks one function of a run, from its n-th call on once: ``BREAK=module:Class.function:N``."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any


def install() -> None:
    """Wraps the function that the environment names, in the process that will run it."""
    module, path, count = os.environ["BREAK"].split(":")
    holder: Any = importlib.import_module(module)
    *owners, name = path.split(".")
    for owner in owners:
        holder = getattr(holder, owner)
    whole, left = getattr(holder, name), [int(count)]

    def broken(*arguments: Any, **keywords: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("injected")
        return whole(*arguments, **keywords)

    setattr(holder, name, broken)


def write_slowly() -> None:
    """Lets every checkpoint take a second, and prints ``writing`` before."""
    import trainer_service.running.training.saving as saving

    whole = saving.save_checkpoint

    def slow(*arguments: Any, **keywords: Any) -> None:
        print("writing", flush=True)
        time.sleep(1.0)
        whole(*arguments, **keywords)

    saving.save_checkpoint = slow
