"""A simulator without faults that tells how the trainer serves it: a line of JSON each 0.2 s.

Arguments: PAUSE_S --mlagents-port N. Twelve agents with a pole to balance; PAUSE_S is slept between ticks.
Exit code 4 if the trainer refuses a call, with what it said.
"""

from __future__ import annotations

import json
import sys
import time

import grpc

from unity_bridge.simulators.conversation import converse
from unity_bridge.simulators.scenes.three_d_ball import ThreeDBall

EXCHANGE = "/communicator_objects.UnityToExternalProto/Exchange"
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
]
PERIOD_S = 0.2


class Meter:
    """Exchanges, and how long each took."""

    def __init__(self, port: str, pause_s: float) -> None:
        self._call = grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS).unary_unary(EXCHANGE)
        self._pause_s = pause_s
        self._ticks = 0
        self._longest = 0.0
        self._due = time.monotonic() + PERIOD_S

    def exchange(self, data: bytes) -> bytes:
        begun = time.monotonic()
        reply: bytes = self._call(data, wait_for_ready=self._ticks == 0)
        now = time.monotonic()
        self._ticks += 1
        self._longest = max(self._longest, now - begun)
        if now >= self._due:
            print(json.dumps({"at": now, "ticks": self._ticks, "longest_s": self._longest}), flush=True)
            self._longest = 0.0
            self._due = now + PERIOD_S
        if self._pause_s:
            time.sleep(self._pause_s)
        return reply


def main(words: list[str]) -> int:
    meter = Meter(words[words.index("--mlagents-port") + 1], float(words[0]))
    try:
        print(converse(meter.exchange, ThreeDBall()), flush=True)
    except grpc.RpcError as error:
        print(f"refused: {error.code()} {error.details()}", flush=True)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
