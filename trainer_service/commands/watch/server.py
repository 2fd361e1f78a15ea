"""The page's server: this machine only, with a token that opens it once."""

from __future__ import annotations

import asyncio
import hmac
import importlib.util
import json
import secrets
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from trainer_service.commands.watch.stage import SPEEDS, Stage
from trainer_service.errors import UserError
from unity_bridge.extras import WATCH_PACKAGES, install_hint
from unity_bridge.simulators.client import terminate_like_ctrl_c
from unity_bridge.transport.ports import is_local_name

HOST = "127.0.0.1"
_LONGEST_COMMAND = 10_000
"""Bytes of the longest command of the page that is read."""
_FILES = {"page.js": "text/javascript", "page.css": "text/css", "words.json": "application/json"}
_POLL_S = 0.02
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Access:
    """Access to the page, for the first browser with the token. A cookie identifies that browser.

    The token is used up when the cookie comes back: what only looks at the address, such as a preview, keeps none.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.cookie = f"watch_session_{secrets.token_hex(4)}"
        """The name of the cookie: a browser sends the pages of all ports the same ones."""
        self._unused = True
        self._session = secrets.token_urlsafe(24)

    def session_for(self, token: str) -> str | None:
        """The session for a token; None if it is wrong or used up."""
        is_right = hmac.compare_digest(token.encode(), self.token.encode())
        return self._session if self._unused and is_right else None

    def admits(self, session: str) -> bool:
        """Whether a cookie is that of the session, which uses up the token."""
        is_right = hmac.compare_digest(session.encode(), self._session.encode())
        self._unused = self._unused and not is_right
        return is_right


def serve(
    stage: Stage,
    play: Callable[[], None],
    *,
    port: int = 0,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serves the page while something plays for it: until Ctrl-C or SIGTERM, or until ``play`` returns.

    Args:
        stage: the stage that the page shows and controls.
        play: called in this thread; the page is served by another one.
        port: 0 for a free one.
        browser: whether to open the page.
        say: told the address.

    Raises:
        UserError: starlette or uvicorn is missing, or the port is taken; or as ``play``.
    """
    require_packages()
    import uvicorn

    access = Access()
    with socket.socket() as listening, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as private:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
            listening.listen()  # a browser may come before the server runs
        except (OSError, OverflowError) as error:
            raise UserError(
                f"--port: {HOST}:{port} cannot be used: {getattr(error, 'strerror', error)}"
            ) from None
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            application(stage, access), log_level="error", access_log=False, lifespan="off"
        )
        server = uvicorn.Server(config)
        url = f"{address}/?token={access.token}"
        say(f"Watch at {url}\nThe address opens once, in one browser of this machine. Ctrl-C ends it.")
        if browser:
            threading.Thread(target=_open, args=(url, Path(private)), daemon=True).start()
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        serving.start()
        try:
            with terminate_like_ctrl_c():
                stage.run(play)
        except KeyboardInterrupt:
            return
        finally:
            stage.close()
            time.sleep(5 * _POLL_S)  # for the page to hear of it
            server.should_exit = True
            serving.join(timeout=5)


def _open(url: str, private: Path) -> None:
    """Opens an address in a browser by a file in a folder of this user: all users see a browser's arguments."""
    with suppress(OSError, webbrowser.Error):  # it is printed, too
        file = private / "watch.html"
        file.touch(mode=0o600)
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={url}">', encoding="ascii")
        webbrowser.open(file.as_uri())


def require_packages() -> None:
    """Raises UserError where a package of the page is missing."""
    missing = [name for name in WATCH_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"watch: {' and '.join(missing)} not installed: {install_hint('watch')}")


def application(stage: Stage, access: Access) -> Callable[..., Any]:
    """The ASGI application."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route

    def refusal(request: Request) -> Response | None:
        if not is_local_name(request.headers.get("host")):
            return PlainTextResponse("wrong host\n", 403)
        if request.method == "POST" and request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("another site\n", 403)
        if not access.admits(request.cookies.get(access.cookie, "")):
            return PlainTextResponse(
                "the address is used already, or its token is wrong; start watch again\n", 403
            )
        return None

    async def page(request: Request) -> Response:
        session = access.session_for(request.query_params.get("token", ""))
        if session is not None:
            answer: Response = RedirectResponse("/", 303)
            # Not "strict": the file that leads here is another site, and a page that POSTs or frames gets no cookie.
            answer.set_cookie(access.cookie, session, httponly=True, samesite="lax")
            return answer
        return refusal(request) or _file("page.html", "text/html")

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return PlainTextResponse("no such file\n", 404)
        return refusal(request) or _file(name, _FILES[name])

    async def about(request: Request) -> Response:
        content = json.dumps({**asdict(stage.about), "speeds": SPEEDS})
        return refusal(request) or Response(content, media_type="application/json", headers=_HEADERS)

    async def events(request: Request) -> Response:
        frames = _frames(stage, request)
        return refusal(request) or StreamingResponse(frames, media_type="text/event-stream", headers=_HEADERS)

    async def control(request: Request) -> Response:
        if refused := refusal(request):
            return refused
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LONGEST_COMMAND:
                return PlainTextResponse("too long\n", 413)
        try:
            stage.command(json.loads(body))
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        return Response(status_code=204)

    def _file(name: str, media_type: str) -> Response:
        content = files(__package__).joinpath(name).read_text(encoding="utf-8")
        return Response(content, media_type=media_type, headers=_HEADERS)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/about", about),
            Route("/events", events),
            Route("/control", control, methods=["POST"]),
            Route("/{name}", static),
        ]
    )


async def _frames(stage: Stage, request: object) -> AsyncIterator[str]:
    """Each new frame as a server-sent event; older ones are left out where the browser is slow."""
    sent, curve = -1, None
    while not await request.is_disconnected():  # type: ignore[attr-defined]
        frame = dict(stage.frame)
        if frame["number"] == sent:
            if stage.closed:
                return
            await asyncio.sleep(_POLL_S)
            continue
        sent = frame["number"]
        if frame.get("curve") == curve:
            frame.pop("curve", None)
        else:
            curve = frame["curve"]
        yield f"data: {json.dumps(frame)}\n\n"
        await asyncio.sleep(_POLL_S)
