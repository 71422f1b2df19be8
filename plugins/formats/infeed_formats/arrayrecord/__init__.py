"""The `arrayrecord` source: ArrayRecord files with random access, through their library."""
