"""The processes `infeed dispatcher` and `infeed worker`."""
