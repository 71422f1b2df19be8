"""Health check of a container: exits with 0 if its role is ready, else prints why and exits with 1.

INFEED_READY_URL is the `/readyz` of the role's `--http`, with https for `--http-tls`. The standard
library is enough, and http.client takes no proxy from the environment, as urllib does.
"""

from __future__ import annotations

import http.client
import os
import sys
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 5.0
"""Below the timeout of HEALTHCHECK, so that the reason is printed. On a host without a free core,
Python alone can take seconds to start."""


def connect(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    """Returns a connection that is not open yet."""
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    import ssl  # noqa: PLC0415 - only where it is needed: this runs every few seconds

    # The certificate names the server as others do, not loopback. Nothing is sent.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


def main() -> str | None:
    """Returns why the role is not ready, or None if it is."""
    url = os.environ.get("INFEED_READY_URL", "http://127.0.0.1:7471/readyz")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"INFEED_READY_URL is {url!r}; set it to http(s)://HOST:PORT/readyz"
    connection = connect(parts.scheme, parts.hostname, parts.port)
    try:
        connection.request("GET", parts.path or "/readyz")
        response = connection.getresponse()
        body = response.read(1000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {error!r}"
    finally:
        connection.close()
    return None if response.status == http.client.OK else f"{url}: {response.status} {body}"


if __name__ == "__main__":
    sys.exit(main())
