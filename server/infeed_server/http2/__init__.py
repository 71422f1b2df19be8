"""The server side of HTTP/2: connections, streams, and DATA frames that are sent without copies.

Threads: one for each connection reads its frames (`Connection.run`); one for each stream handles
the request and sends the response.

Locks: `Connection._send_lock` is held while bytes are sent, `Connection._changed` while the
protocol state is read or changed, in this order where both are. A thread that finds the send lock
taken leaves its frames to the thread that holds it.

Flow control: received data is acknowledged when a stream's thread takes it; a response waits for
the peer's window before each send.

`protocol` relies on names of h2 that are not documented: `incoming_buffer`, `state_machine`,
`outbound_flow_control_window`, `clear_outbound_data_buffer`, and those of `FrameBuffer`.
"""
