"""HTTP/2 client: sockets, TLS, frames and flow control."""
