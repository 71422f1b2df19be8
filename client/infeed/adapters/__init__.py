"""Parts of several adapters: feeds that connect late, tensors in place, replays."""
