"""The `mds` source: shards of Mosaic Streaming's format."""
