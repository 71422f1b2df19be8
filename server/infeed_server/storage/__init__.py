"""Storage: files on disks and in object stores, their listing, and reads that detect changes."""
