"""Whether everything that learns does so on a GPU, with the CPU's numbers, and what a GPU brings.

    python benchmarks/gpu_check.py                              # less than five minutes on one H100
    python benchmarks/gpu_check.py --parts numbers checkpoints  # some parts; --list says what they are
    python benchmarks/gpu_check.py --out figures.json
    python benchmarks/gpu_check.py --device cpu                 # the script itself, where there is no GPU

It needs no network and no simulator but the bundled ones. Ends with 0 where all is well, with 1 where a finding is not
as it should be, and with 2 where there is no such device.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from measuring import device_groups, device_runs, device_speed
from measuring.findings import Finding, table
from measuring.terminal import load, say

Part = Callable[[torch.device], Iterator[Finding]]
PARTS: Mapping[str, Part] = {
    "numbers": device_runs.check_numbers,
    "checkpoints": device_runs.check_checkpoints,
    "sizes": device_speed.measure_sizes,
    "groups": device_groups.measure_groups,
    "transfers": device_speed.measure_transfers,
    "bfloat16": device_speed.measure_bfloat16,
    "graphs": device_speed.measure_graphs,
    "ranks": device_speed.check_ranks,
    "memory": device_runs.check_memory,
}
"""By name, in the order in which they run. The first line of each says what it is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns the exit code."""
    arguments = parse(argv)
    if arguments.list:
        print("\n".join(f"{name:<12} {(part.__doc__ or '').splitlines()[0]}" for name, part in PARTS.items()))
        return 0
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(f"torch {torch.__version__} finds no CUDA device here; --device cpu runs what needs none")
        return 2
    conditions = about(device)
    print(conditions, flush=True)
    findings = {name: list(run(name, device)) for name in arguments.parts}
    print(table(findings), flush=True)
    if arguments.out:
        parts = {name: [asdict(each) for each in found] for name, found in findings.items()}
        document = {"conditions": conditions, "device": str(device), "parts": parts}
        arguments.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return int(any(each.passed is False for found in findings.values() for each in found))


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(description="Whether everything learns on a GPU, and what a GPU brings.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="default cuda")
    parser.add_argument(
        "--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="these alone (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="say what the parts are, and run nothing")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write every figure, as JSON")
    return parser.parse_args(argv)


def run(name: str, device: torch.device) -> Iterator[Finding]:
    """The findings of a part; an error is one of them, so that other parts are still tried."""
    began = time.perf_counter()
    try:
        for finding in PARTS[name](device):
            say(f"{name}: {finding.name}")
            yield finding
    except Exception as error:
        yield Finding("error", False, note=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
    say(f"{name}: {time.perf_counter() - began:.1f} s")


def about(device: torch.device) -> str:
    """The device, threads and versions of every figure."""
    what = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    return (
        f"{what}, torch {torch.__version__} with {torch.get_num_threads()} threads, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, load {load()}"
    )


if __name__ == "__main__":
    sys.exit(main())
