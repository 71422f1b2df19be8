"""Generated tables of the documents: `make docs` writes them, `make lint` compares them.

A page holds a table between two markers:

    <!-- generated: options.shuffle -->
    <!-- end -->

The name selects the table; its rows, defaults and texts are read from the code. `pages` writes
tables into pages, `command` lists all tables, and every other module makes some of them.
"""
