"""The control plane: what is shown over HTTP, and to which requests."""
