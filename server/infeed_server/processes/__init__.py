"""Child processes, periodic calls, signals and the allocator."""
