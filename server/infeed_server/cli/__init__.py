"""The server's commands, added to `infeed` through the entry point group `infeed.commands`."""
