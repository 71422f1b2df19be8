"""The `webdataset` source: tars of samples, with random access."""
