"""The `mds` source: shards in Mosaic Streaming's format."""
