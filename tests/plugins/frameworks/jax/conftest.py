"""Eight virtual devices: set before a test initialises JAX, which reads the flag once."""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)
