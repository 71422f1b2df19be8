"""The engine `tf-data-service` of `infeed serve`, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from infeed.shared.errors import ConfigError
from infeed_server.runtime.engines import OpenEngine, ServicePackage
from infeed_service.dataset import COMPRESSIONS
from infeed_service.options import ServiceOptions

if TYPE_CHECKING:
    from infeed_service.gateway.service import DataService


def open_service(options: ServiceOptions, insecure: bool) -> DataService:
    """Returns the service, not started. Raises `ConfigError`."""
    # TensorFlow takes seconds to load; the options are checked before.
    from infeed_service.gateway.service import (  # noqa: PLC0415
        EmbeddedDataService,
        ExternalDataService,
    )

    if options.dispatcher:
        return ExternalDataService(options.dispatcher, options)
    return EmbeddedDataService(options, insecure=insecure)


def configure(options: Mapping[str, Any]) -> OpenEngine:
    """Returns the function that opens the service. Raises `ConfigError` for an unknown compression
    or an option without effect."""
    if options.get("compression", "none") not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise ConfigError(f"--compression {options['compression']!r}: not one of {known}")
    own = [name for name in ("workers", "dispatcher_listen", "work_dir") if name in options]
    if "dispatcher" in options and own:
        raise ConfigError(
            f"--{own[0].replace('_', '-')} has no effect with --dispatcher, which joins a service "
            "that already runs; leave out one of them"
        )
    return partial(open_service, ServiceOptions(**options))


PACKAGE = ServicePackage(ServiceOptions, configure)
