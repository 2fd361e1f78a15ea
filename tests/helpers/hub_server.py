"""A server that answers as the Hugging Face Hub does, on a port of this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass
class FakeHub:
    """The repositories of the server, and what it was told."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Contents by repository and file name."""
    created: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of requests for new repositories."""
    messages: list[str] = field(default_factory=list)
    """Messages of commits."""
    received: list[bytes] = field(default_factory=list)
    """All bytes of requests that are not downloads: paths, headers and bodies."""
    downloads: list[str] = field(default_factory=list)
    endpoint: str = ""
    refuses_tokens: bool = False
    """Whether every token is unknown."""


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length is not None else self._chunks()
        self.hub.received.append(f"{self.path}\n{self.headers}".encode() + body)
        path = urlsplit(self.path).path
        if self.hub.refuses_tokens:
            self._json({"error": "Invalid username or password."}, 401)
        elif path == "/api/repos/create":
            asked = json.loads(body)
            self.hub.created.append(asked)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.hub.files.setdefault(name, {})
            self._json({"url": f"{self.hub.endpoint}/{name}", "name": name, "id": name})
        elif path.endswith("/validate-yaml"):
            self._json({"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/[^/]+", path):
            files = json.loads(body)["files"]
            self._json(
                {"files": [{**each, "uploadMode": "regular", "shouldIgnore": False} for each in files]}
            )
        elif match := re.fullmatch(r"/api/models/(.+)/commit/[^/]+", path):
            self._commit(match[1], body)
        else:
            self._json({"error": "no such page"}, 404)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+)?", path):
            if match[1] not in self.hub.files:
                self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
                return
            siblings = [
                {"rfilename": name, "size": len(data), "blobId": "0"}
                for name, data in self.hub.files[match[1]].items()
            ]
            self._json({"id": match[1], "modelId": match[1], "sha": COMMIT, "siblings": siblings, "tags": []})
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            data = self.hub.files.get(match[1], {}).get(match[2])
            if data is None:
                self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
                return
            self.hub.downloads.append(match[2])
            self._reply(
                data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT}, "text/plain"
            )
        else:
            self._json({"error": "no such page"}, 404)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class calls

    def _commit(self, repo: str, body: bytes) -> None:
        for line in body.decode().splitlines():
            part = json.loads(line)
            if part["key"] == "header":
                self.hub.messages.append(part["value"]["summary"])
            elif part["key"] == "file":
                content = base64.b64decode(part["value"]["content"])
                self.hub.files[repo][part["value"]["path"]] = content
        self._json({"commitUrl": f"{self.hub.endpoint}/{repo}/commit/{COMMIT}", "commitOid": COMMIT})

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._reply(json.dumps(value).encode(), headers or {}, "application/json", status)

    def _reply(self, data: bytes, headers: dict[str, str], kind: str, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": kind, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
