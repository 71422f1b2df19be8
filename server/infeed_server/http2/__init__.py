"""The server side of HTTP/2: connections, streams, and DATA frames that are sent without copies.

docs/transport.md explains its threads, locks and flow control.
"""
