"""Instruments of a server: metrics, status, previews and the dashboard over HTTP."""
