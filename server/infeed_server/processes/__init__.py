"""Child processes, signals and the allocator."""
