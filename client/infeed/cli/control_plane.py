"""Requests to the control plane of a server, the HTTP address of `infeed serve --http`."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from infeed.cli.files import problem_of
from infeed.errors import ConfigError, ProtocolError, ServerUnavailableError

_MAX_BYTES = 16 << 20
"""Bound on an answer: the status of a thousand trainers is a megabyte."""

_TRAINERS_PORT = (
    "it may be the address for trainers; give that of --http, which infeed serve prints after it: "
    "serving on HOST:PORT (http HOST:PORT)"
)


@dataclass(frozen=True)
class ControlPlane:
    """The control plane at an address."""

    host: str
    port: int
    tls: bool = False
    timeout: float = 5.0
    """Seconds that one request may take."""

    @classmethod
    def parse(cls, target: str, timeout: float = 5.0) -> ControlPlane:
        """Returns that of `host:port`, or of a URL without a path. Raises `ConfigError`."""
        try:
            parts = urlsplit(target if "://" in target else f"http://{target}")
            host, port = parts.hostname, parts.port
        except ValueError as problem:
            raise _wrong_target(target, str(problem)) from None
        if parts.scheme not in ("http", "https"):
            raise _wrong_target(target, f"{parts.scheme!r} is no scheme of HTTP")
        if not host or port is None:
            raise _wrong_target(target, f"it has no {'port' if host else 'host'}")
        if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
            raise _wrong_target(target, "it has more than a host and a port")
        return cls(host, port, parts.scheme == "https", timeout)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def status(self) -> dict[str, Any]:
        """Returns the document of `/api/v1/status`.

        Raises `ServerUnavailableError` if there is no answer, and `ProtocolError` if the answer is
        not that of a server with this API.
        """
        code, document = self._get("/api/v1/status")
        if code == http.client.OK and _is_status(document):
            return dict(document)
        if code == http.client.NOT_FOUND:
            raise self._without_status()
        problem = document.get("error") if isinstance(document, dict) else None
        raise ProtocolError(f"{self.url}: {problem or self._not_infeed(code)}", target=self.url)

    def _without_status(self) -> ProtocolError:
        """Returns the error for a server that does not know the path."""
        code, index = self._get("/")
        if not (isinstance(index, dict) and index.get("server") == "infeed"):
            return ProtocolError(f"{self.url}: {self._not_infeed(code)}", target=self.url)
        return ProtocolError(
            f"{self.url}: infeed {index.get('version')} has no /api/v1/status here: it is older "
            "than this command, or is a dispatcher or worker; see "
            f"{self.url}/metrics",
            target=self.url,
        )

    def _not_infeed(self, code: int) -> str:
        return f"no control plane of infeed: /api/v1/status answers {code}; give that of --http"

    def _get(self, path: str) -> tuple[int, Any]:
        """Returns the status code, and the JSON of the answer or None."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers={"accept": "application/json"})
            response = connection.getresponse()
            body = response.read(_MAX_BYTES + 1)
        except http.client.HTTPException as problem:
            text = f"the answer is not HTTP ({type(problem).__name__}); {_TRAINERS_PORT}"
            raise ProtocolError(f"{self.url}: {text}", target=self.url) from None
        except ConnectionResetError:
            text = f"it closes the connection without an answer; {_TRAINERS_PORT}"
            raise ProtocolError(f"{self.url}: {text}", target=self.url) from None
        except OSError as problem:
            raise self._unavailable(problem) from None
        finally:
            connection.close()
        try:
            return response.status, json.loads(body) if len(body) <= _MAX_BYTES else None
        except ValueError:
            return response.status, None

    def _connect(self) -> http.client.HTTPConnection:
        if self.tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self.host, self.port, timeout=self.timeout, context=context
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)

    def _unavailable(self, problem: OSError) -> ServerUnavailableError:
        text = "no answer" if isinstance(problem, TimeoutError) else problem_of(problem)
        within = f" within {self.timeout:g} s" if isinstance(problem, TimeoutError) else ""
        return ServerUnavailableError(
            f"{self.url}: {text}{within}; is infeed serve running, with this --http?",
            target=self.url,
        )


def _is_status(document: Any) -> bool:
    return isinstance(document, dict) and {"server", "verdict", "pipelines"} <= document.keys()


def _wrong_target(target: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{target!r}: {problem}; give the address of the control plane, such as "
        "http://127.0.0.1:7471",
        target=target,
    )
