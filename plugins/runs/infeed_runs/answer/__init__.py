"""A server's answers about the order of a run: the calls DescribeSlots and FindSample."""
