"""HTTP/2 as a server has it: connections, streams, and bytes that are sent from where they lie."""
