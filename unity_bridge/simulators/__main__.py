"""``python -m unity_bridge.simulators ENV --mlagents-port N``"""

from __future__ import annotations

import faulthandler
import os
import sys

if __name__ == "__main__":
    # Scenes are small: more threads would only take cores from the trainer. Counted when NumPy loads.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    # A crash in C code, or a hang until the trainer asks where (SIGABRT), is reported with its line.
    faulthandler.enable(all_threads=False)

from unity_bridge.simulators.command import main
from unity_bridge.simulators.objects import opener_of, read_content
from unity_bridge.simulators.schemes import PROGRAM

__all__ = ["main"]

if __name__ == "__main__":
    sent = sys.argv[1:2] and sys.argv[1].startswith(f"{PROGRAM.name}:")
    sys.exit(main(opener=opener_of(read_content(sys.stdin.buffer))) if sent else main())
