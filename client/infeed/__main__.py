"""Entry point of `python -m infeed`, the same as the command `infeed`."""

from infeed.cli import main

if __name__ == "__main__":
    main()
