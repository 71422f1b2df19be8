"""Simulation from the command line: many seeds; a violation is printed with its seed."""

from __future__ import annotations

import argparse
import logging
import time

from tests.simulation.simulation import Simulation, ViolationError


def main() -> None:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=250, help="number of seeds")
    parser.add_argument("--faults", type=int, default=400, help="faults of each seed")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of servers that are left out
    begin = time.process_time()
    totals = dict.fromkeys(("faults", "steps", "feeds", "interrupts"), 0)
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        run = Simulation(seed, options.faults)
        try:
            run.run()
        except ViolationError as violation:
            failed += 1
            print(violation)
        for name in totals:
            totals[name] += getattr(run, name)
    seconds = time.process_time() - begin
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    print(f"{totals['faults'] / seconds:.0f} faults per CPU second; {failed} seeds failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
