"""gRPC client: calls, statuses and credentials over `infeed.http2`."""
