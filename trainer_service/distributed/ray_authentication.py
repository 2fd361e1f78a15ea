"""Authentication at a Ray cluster: whether it requires a token, and whether it accepts ours.

Ray executes any code that it receives. So everybody who can reach the ports of a cluster without authentication can
control it (CVE-2023-48022). Each check is one call, made before Ray connects, since Ray would try for half a minute.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainer_service.errors import UserError
from unity_bridge.transport.call_status import call_status

CLIENT = "ray://"
"""Prefix of the address of Ray's client server. Other addresses are of the cluster's control service (GCS)."""
_GCS_METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_CLIENT_METHOD = "/ray.rpc.RayletDriver/ClusterInfo"
_ANSWER_S = 10.0
"""Seconds that a cluster may take to answer."""
_NO_ANSWER = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
_REFUSED = "UNAUTHENTICATED"


def asks_for_token(address: str) -> bool:
    """Whether a cluster requires a token or a certificate.

    Args:
        address: HOST:PORT or ray://HOST:PORT.

    Raises:
        UserError: The cluster does not answer.
    """
    if _has_mutual_tls():
        return True
    return _status(address) == _REFUSED


def check_token(address: str) -> None:
    """Raises UserError if a cluster that requires a token would reject this machine's token."""
    mode = os.environ.get("RAY_AUTH_MODE", "token").lower()
    if _has_mutual_tls() or mode not in ("token", "disabled"):
        return  # Ray handles Kubernetes' tokens itself
    token = own_token()
    if not token:
        raise UserError(
            f"The Ray cluster at {address} requires a token, and this machine has none: copy ~/.ray/auth_token from "
            "its head node, or name the file in RAY_AUTH_TOKEN_PATH"
        )
    if _status(address, token) == _REFUSED:
        raise UserError(
            f"The Ray cluster at {address} refuses the token of this machine: it must be the head node's, in "
            "RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"
        )


def own_token() -> str:
    """Returns the token that Ray would send from this machine; empty without a token."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _has_mutual_tls() -> bool:
    """Whether Ray uses TLS with certificates on both sides."""
    return os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")


def _status(address: str, token: str = "") -> str:
    method = _CLIENT_METHOD if address.startswith(CLIENT) else _GCS_METHOD
    status = call_status(address.removeprefix(CLIENT), method, token=token, timeout_s=_ANSWER_S)
    if status in _NO_ANSWER:
        raise UserError(f"No Ray cluster answers at {address}: is it running, and may this machine reach it?")
    return status
