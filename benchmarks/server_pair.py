"""infeed's client (this checkout) against the server of this checkout and that of another one, in turns.

PYTHONPATH=. .venv/bin/python benchmarks/server_pair.py OLD_CHECKOUT [--pairs 5] [--seconds 6] [CASE ...]

Prints new / old: median of the pairs' ratios, and the smallest and largest. Cases: uint8 uint8-tls float32
photos photos-tls tiny-4 tiny-48 tiny-200.
"""
import argparse, multiprocessing as mp, os, resource, statistics, subprocess, sys, tempfile, threading, time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import servers
from benchmarks.duel import (Goal, Plan, Side, duel, gigabytes_per_second, images_per_second,
                             server_cpu_per_gigabyte, trainer_cpu_per_gigabyte)
from tests.harness.server import InfeedServer
from tests.harness.spawned import SpawnedProcess

parser = argparse.ArgumentParser()
parser.add_argument("old")
parser.add_argument("cases", nargs="*")
parser.add_argument("--pairs", type=int, default=5)
parser.add_argument("--seconds", type=float, default=6)


def launch(root, arguments, log, cwd):
    command = [f"{root}/.venv/bin/python", "-m", "infeed", *arguments]
    return SpawnedProcess(command, log, cwd=Path(root), environment={"PYTHONPATH": ""})


def show(case, measure, ours, theirs):
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    print(f"{case:11} {measure:28} {statistics.median(ratios):6.2f} [{ratios[0]:.2f}-{ratios[-1]:.2f}]   "
          f"new {statistics.median(ours):.4g} old {statistics.median(theirs):.4g}", flush=True)


def large(case, args, roots):
    dataset = case.removesuffix("-tls")
    sides = []
    for name, root in roots.items():
        run = partial(servers.infeed, launch=partial(launch, root))
        if case.endswith("-tls"):
            run = partial(servers._in_tls, partial(launch, root))
        sides.append(Side(name, "infeed", run, dataset, warm_up=3.0 if dataset == "photos" else 1.0))
    goals = [Goal("images/s", images_per_second) if dataset == "photos" else Goal("GB/s", gigabytes_per_second),
             Goal("trainer CPU s/GB", trainer_cpu_per_gigabyte), Goal("server CPU s/GB", server_cpu_per_gigabyte)]
    for finding in duel(*sides, goals, Plan(pairs=args.pairs, seconds=args.seconds)):
        show(case, finding.measure, finding.ours.values, finding.theirs.values)


def cpu(pid):
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / 100


def rss(pid):
    return int(next(l for l in Path(f"/proc/{pid}/status").read_text().splitlines() if l.startswith("VmRSS")).split()[1]) / 1024


def trainers(address, streams, seconds, start, pipe):
    import infeed
    counts = [0] * streams
    def read(i):
        with infeed.connect(address, "tiny", epochs=None, prefetch_bytes=1 << 14, timeout=120) as feed:
            next(feed); ready.release(); start.wait()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                next(feed); counts[i] += 1
    ready = threading.Semaphore(0)
    threads = [threading.Thread(target=read, args=(i,)) for i in range(streams)]
    for t in threads: t.start()
    for t in threads: ready.acquire()
    pipe.send("ready")
    before = None
    start.wait(); before = time.process_time()
    for t in threads: t.join()
    pipe.send((counts, time.process_time() - before))


def tiny_once(server, streams, seconds):
    context = mp.get_context("spawn")
    start = context.Event()
    procs, pipes, parts = [], [], [streams // 2, streams - streams // 2]
    for part in parts:
        here, there = context.Pipe()
        p = context.Process(target=trainers, args=(server.address, part, seconds, start, there))
        p.start(); procs.append(p); pipes.append(here)
    for pipe in pipes: assert pipe.recv() == "ready"
    before = cpu(server.pid); start.set()
    time.sleep(seconds / 2); memory = rss(server.pid)
    results = [pipe.recv() for pipe in pipes]
    for p in procs: p.join()
    counts = [c for cs, _ in results for c in cs]; total = sum(counts)
    return {"batches/s": total / seconds, "slowest / mean": min(counts) / (total / len(counts)) + 1e-9,
            "server CPU ms/batch": 1e3 * (cpu(server.pid) - before) / total,
            "trainer CPU ms/batch": 1e3 * sum(c for _, c in results) / total, "server MB": memory}


def tiny(case, args, roots):
    streams = int(case.split("-")[1])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        import numpy as np
        np.savez(folder / "tiny.npz", x=np.zeros((6400, 16), np.float32))
        (folder / "p.yaml").write_text("pipelines: {tiny: {source: {arrays: %s}, batch: {size: 16}}}" % (folder / "tiny.npz"))
        running = {n: stack.enter_context(InfeedServer(folder / "p.yaml", folder / n, "--peer-streams", "256",
                   cwd=folder, launch=partial(launch, r))) for n, r in roots.items()}
        rounds = [{n: tiny_once(s, streams, args.seconds) for n, s in running.items()} for _ in range(args.pairs)]
    for measure in rounds[0]["new"]:
        show(case, measure, *([r[n][measure] for r in rounds] for n in ("new", "old")))


if __name__ == "__main__":
    args = parser.parse_args()
    roots = {"new": os.getcwd(), "old": args.old}
    for case in args.cases or ["uint8", "uint8-tls", "float32", "photos", "photos-tls", "tiny-4", "tiny-48", "tiny-200"]:
        try:
            (tiny if case.startswith("tiny") else large)(case, args, roots)
        except Exception as error:
            print(case, "failed:", type(error).__name__, error, flush=True)
