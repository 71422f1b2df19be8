"""The `tokens` source: Megatron's .idx and .bin pairs, with random access."""
