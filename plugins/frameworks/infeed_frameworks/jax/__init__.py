"""JAX adapter: global arrays on the devices of a sharding."""
