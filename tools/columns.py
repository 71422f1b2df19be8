"""Lists of names in two columns, as docstrings have them."""

import re

COLUMN = re.compile(r"(\w+(?:, \w+)*)  +(\S.*)")
"""A line of such a list: names separated by commas, and at least two spaces before the text."""
