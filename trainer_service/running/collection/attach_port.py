"""The port for attached simulators, with TLS and tokens for other machines."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from trainer_service.errors import UserError
from unity_bridge.remote.access import RemoteAccess
from unity_bridge.server.bridge import Bridge
from unity_bridge.transport.endpoint import is_loopback

EDITOR_PORT = 5004
"""The port on which the Unity Editor looks for a trainer."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachPort:
    """The port of a run without launched simulators. For other machines it has TLS and a token."""

    host: str = "127.0.0.1"
    port: int = EDITOR_PORT
    """Port number; 0 lets the system choose."""
    insecure_listen: bool = False
    """Whether ``host`` may be an address that other machines can reach without TLS and token."""
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    token_file: str | os.PathLike[str] | None = None

    def access(self) -> RemoteAccess | None:
        """Returns the port's TLS certificate and tokens, read or created; None if it has none.

        Raises:
            UserError: The settings contradict each other.
            RemoteError: A file cannot be used, or a certificate cannot be created.
        """
        files = {"--tls-cert": self.tls_cert, "--tls-key": self.tls_key, "--token-file": self.token_file}
        given = [flag for flag, path in files.items() if path is not None]
        if self.insecure_listen and given:
            raise UserError(
                f"--insecure-listen: the port would have no TLS and no token: leave out {', '.join(given)}"
            )
        if self.insecure_listen and not is_loopback(self.host):
            _logger.warning(
                "Other machines reach this port (--insecure-listen): it asks for no token, and nothing is encrypted."
            )
        if self.insecure_listen or (is_loopback(self.host) and not given):
            return None
        paths = [None if path is None else Path(path) for path in files.values()]
        return RemoteAccess.open(tls_cert=paths[0], tls_key=paths[1], token_file=paths[2])

    def listen(self, bridge: Bridge, access: RemoteAccess | None, base_port: int | None) -> None:
        """Opens the port, and logs how to attach.

        Args:
            bridge: the bridge of the port.
            access: the result of ``access``.
            base_port: the setting ``base_port``, which does not apply to this port.
        """
        port = bridge.listen(self.host, self.port, access)
        if base_port not in (None, port):
            # Not an error, since files of ML-Agents have it. But a user who typed it would wait on the wrong port.
            _logger.warning(
                "base_port: %d is where simulators that are launched (--env) are expected; --port says where others "
                "are.",
                base_port,
            )
        if access is not None:
            access.announce(self.host, port)
            return
        _logger.info(
            "Listening on port %d. Start training by pressing the Play button in the Unity Editor. "
            "Or attach a simulator: mlagents-style simulate sim:3dball --mlagents-port %d",
            port, port,
        )  # fmt: skip
