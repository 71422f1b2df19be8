"""`python -m infeed` is the command `infeed`."""

from infeed.cli import main

if __name__ == "__main__":
    main()
