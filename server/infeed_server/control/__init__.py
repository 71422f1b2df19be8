"""The control plane: health, metrics and the HTTP server that exposes both."""
