"""The `tfrecord` source: TFRecord files with random access."""
