"""The control plane: HTTP endpoints, and access to them."""
