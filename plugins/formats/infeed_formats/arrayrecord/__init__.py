"""The `arrayrecord` source: ArrayRecord files with random access, read by `array_record`."""
