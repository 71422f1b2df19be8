"""The server's commands, which entry points of the group `infeed.commands` add to `infeed`."""
