"""The `tokens` source: Megatron's pairs of .idx and .bin, with random access."""
