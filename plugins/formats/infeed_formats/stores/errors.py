"""Errors of object stores as errors of the operating system, with problem, value and remedy."""

from __future__ import annotations

import asyncio
import errno
import re

_CREDENTIALS = "set credentials, see docs/sources.md, Object stores"

_NO_CREDENTIALS = (
    r"169\.254\.169|latest/(api/token|meta-data)|metadata\.google|MissingApiKey"
    "|NoCredentials|performing token request|security-credentials"
)
_WRONG_CREDENTIALS = (
    "InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|invalid_grant"
    "|UnauthenticatedError|401 Unauthorized"
)
_BAD_FILE = "(open|decode) service account|credential error"
_DENIED = "PermissionDeniedError|AccessDenied|403 Forbidden"
_REGION = "PermanentRedirect|AuthorizationHeaderMalformed|without LOCATION"
_WHOLE = "Range request not supported|non-partial response|NotPartial|Content-Range"
_AWAY = "dns error|Connection refused|connect error|error sending request"

_NO_BUCKET = "NoSuchBucket|bucket does not exist|ContainerNotFound"
_REFUSED = f"the store rejects the credentials; {_CREDENTIALS}"
_NONE = f"neither the environment nor this host's metadata has credentials; {_CREDENTIALS}"
_CLOCK = "this host's clock differs too much from the store's; set it, as with chrony"
_CLOSED = f"the store denies access; grant the right to read and list, or {_CREDENTIALS}"
_COPY = "the server ignores Range and sends the whole object; copy it to a store with ranges"
_ENDPOINT = "the store cannot be reached; check the endpoint, such as AWS_ENDPOINT_URL"
_ACCOUNT = "no account; set AZURE_STORAGE_ACCOUNT_NAME"

_PROBLEMS: tuple[tuple[str, int, str], ...] = (
    (_NO_CREDENTIALS, errno.EACCES, _NONE),
    ("RequestTimeTooSkewed", errno.EACCES, _CLOCK),
    (_NO_BUCKET, errno.ENOENT, "no such bucket; correct its name"),
    (_WRONG_CREDENTIALS, errno.EACCES, _REFUSED),
    ("Account must be specified", errno.EINVAL, _ACCOUNT),
    (_BAD_FILE, errno.EINVAL, f"the credentials file cannot be used; {_CREDENTIALS}"),
    (_DENIED, errno.EACCES, _CLOSED),
    (_REGION, errno.EREMOTE, "the bucket is in another region; set AWS_REGION"),
    (_WHOLE, errno.EOPNOTSUPP, _COPY),
    ("NotFoundError|404 Not Found", errno.ENOENT, "no such object"),
    (_AWAY, errno.EHOSTUNREACH, _ENDPOINT),
)
"""Pattern of an error's type and text, number, message; the first match counts."""


_KEY = re.compile(r'Path "(.*?)"(?:: Encountered| contained)', re.DOTALL)
"""The key in obstore's error about a key that it cannot read."""


def os_error(error: Exception, path: str, seconds: float) -> OSError:
    """Returns an error of obstore, or of a request that took `seconds`, as an `OSError`."""
    if isinstance(error, asyncio.TimeoutError):
        problem = f"no answer within {seconds:g} s; check the endpoint, network and credentials"
        return OSError(errno.ETIMEDOUT, problem, path)
    if isinstance(error, OSError) and error.errno is not None:  # obstore's own has no number
        return error
    kind, text = type(error).__name__, str(error)
    if kind == "PreconditionError":
        return OSError(errno.ESTALE, "it has another etag")
    if key := _KEY.search(text):
        problem = f"the key {key[1]!r} has an empty part, '.', '..' or a control character; rename "
        return OSError(errno.EINVAL, problem + "that object, or name a folder without it", path)
    for pattern, code, problem in _PROBLEMS:
        if re.search(pattern, f"{kind} {text}", re.IGNORECASE):
            return OSError(code, problem, path)
    # Later lines repeat the error's representation.
    return OSError(errno.EIO, text.partition("\n")[0].strip()[:300] or kind, path)
