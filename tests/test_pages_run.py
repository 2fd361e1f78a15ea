"""Blocks of pages run as they stand, in their order, in an empty folder: files, programs and commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import page_blocks
import pytest

QUICK = {
    "README.md",
    "docs/automation.md",
}
"""Pages that CI runs; `make test-all` runs all."""

WITH_BLOCKS = [page for page in page_blocks.PAGES if any(not block.not_run for block in page_blocks.blocks_of(page))]
