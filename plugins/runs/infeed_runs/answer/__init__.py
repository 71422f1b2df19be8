"""Answers of a server about the order of a run: the calls DescribeSlots and FindSample."""
