# SPDX-License-Identifier: Apache-2.0
"""A tenant that uses a GPU in one pattern for a while, for scripts/gpu-acceptance.

usage: gpu_time.py SECONDS PATTERN [NUMBER...]

  gemm N               products of two N x N half-precision matrices, behind each other, a few in flight
  small                elementwise kernels of a few microseconds, behind each other
  graph COUNT N        a captured graph of COUNT products of N x N matrices
  streams COUNT N      products in COUNT streams
  burst GPU_MS CPU_MS  work of about GPU_MS, a wait for its end, a sleep
  request EACH_MS      wakes every EACH_MS, does a product of 1024 x 1024, waits for its end; latencies
  hang                 a kernel that runs for a minute

It says `loaded` and waits for a line; warms up, measures what one unit takes alone (no other tenant may run meanwhile),
says `ready` and waits for a line; runs for SECONDS and prints one JSON document: units done, nanoseconds of a unit
alone, seconds, latencies in nanoseconds.
"""
import json
import sys
import time

import torch

SECONDS, PATTERN, NUMBERS = float(sys.argv[1]), sys.argv[2], [float(word) for word in sys.argv[3:]]
# Enough to keep the GPU fed, few enough for the end of the window to be the end of the work.
IN_FLIGHT = 4


def product(n):
    a = torch.randn(n, n, device="cuda", dtype=torch.half)
    b, out = torch.randn_like(a), torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def small():
    x = torch.randn(1 << 20, device="cuda")
    return lambda: x.mul_(1.0000001)


def graph(count, n):
    one, side = product(n), torch.cuda.Stream()
    with torch.cuda.stream(side):
        one()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(count):
            one()
    return captured.replay


def streams(count, n):
    many = [(torch.cuda.Stream(), product(n)) for _ in range(count)]

    def all_of_them():
        for stream, one in many:
            with torch.cuda.stream(stream):
                one()
        for stream, _ in many:
            torch.cuda.current_stream().wait_stream(stream)

    return all_of_them


def alone_ns(unit, count=50):
    """What a unit takes with nobody else on the GPU."""
    for _ in range(5):
        unit()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(count):
        unit()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e6 / count


def several(unit, ns, wanted_ns):
    """A unit of about so many nanoseconds."""
    times = max(1, round(wanted_ns / ns))

    def repeated():
        for _ in range(times):
            unit()

    return repeated, ns * times


def ready():
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()


def saturate(unit, ns):
    # Batches of a fifth of a millisecond: an event for each would be a cost of its own.
    unit, ns = several(unit, ns, max(ns, 200_000))
    ready()
    done, flying, begin = 0, [], time.monotonic()
    while time.monotonic() - begin < SECONDS:
        unit()
        event = torch.cuda.Event(blocking=True)
        event.record()
        flying.append(event)
        if len(flying) >= IN_FLIGHT:
            flying.pop(0).synchronize()
            done += 1
    return {"units": done, "unit_ns": ns, "seconds": time.monotonic() - begin}


def burst(gpu_ms, cpu_ms):
    unit = product(1024)
    unit, ns = several(unit, alone_ns(unit), gpu_ms * 1e6)
    ready()
    done, begin = 0, time.monotonic()
    while time.monotonic() - begin < SECONDS:
        unit()
        torch.cuda.synchronize()
        done += 1
        until = time.perf_counter() + cpu_ms / 1e3
        time.sleep(max(0, cpu_ms / 1e3 - 0.0002))
        while time.perf_counter() < until:
            pass
    return {"units": done, "unit_ns": ns, "seconds": time.monotonic() - begin}


def request(each_ms):
    unit, latencies = product(1024), []
    ns = alone_ns(unit)
    ready()
    begin = due = time.monotonic()
    while time.monotonic() - begin < SECONDS:
        due += each_ms / 1e3
        time.sleep(max(0, due - time.monotonic()))
        woke = time.monotonic()
        unit()
        torch.cuda.synchronize()
        latencies.append(round((time.monotonic() - woke) * 1e9))
    return {"units": len(latencies), "unit_ns": ns, "seconds": time.monotonic() - begin, "latencies": latencies}


def hang():
    torch.zeros(1, device="cuda")
    ready()
    torch.cuda._sleep(60 * 1_500_000_000)
    time.sleep(SECONDS)
    return {"units": 0, "unit_ns": 0, "seconds": SECONDS}


def main():
    if PATTERN == "burst":
        return burst(*NUMBERS)
    if PATTERN == "request":
        return request(*NUMBERS)
    if PATTERN == "hang":
        return hang()
    whole = [int(number) for number in NUMBERS]
    unit = {"gemm": product, "small": small, "graph": graph, "streams": streams}[PATTERN](*whole)
    return saturate(unit, alone_ns(unit, 5 if PATTERN == "graph" else 50))


torch.zeros(1, device="cuda")
print("loaded", flush=True)
sys.stdin.readline()
print(json.dumps(main()), flush=True)
if PATTERN == "hang":
    # The kernel would keep the interpreter's end waiting.
    import os

    os._exit(0)
