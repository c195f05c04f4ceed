# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/gpu-acceptance in which tenants share a GPU: most scenarios from S2 to S18, with PyTorch's
kernels.

Each part takes the folder that it may write to.
"""
import json
import signal
import subprocess
import sys
import time

from gpu_acceptance.session import PARTAGE, ROOT, check, environment, measured, shell, skip


class Tenant:
    """One process of a scenario: bare, or a job of Partage."""

    def __init__(self, work, seconds, pattern, *options):
        program = [sys.executable, str(ROOT / "cuda-tests/programs/gpu_time.py"), str(seconds), *pattern.split()]
        command = program if not options else [PARTAGE, "run", "-q", "-g", "0", *options[0].split(), "--", *program]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment(work), **pipes)
        self.pattern = pattern

    def wait_for(self, word):
        if self.process.stdout.readline() != f"{word}\n":
            raise RuntimeError(f"{self.pattern}: {self.process.communicate()[1][-400:]}")

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def go(self):
        """Runs from now on; for one that is started while others run already, what a unit takes alone is not used."""
        self.wait_for("loaded")
        self.say()
        self.wait_for("ready")
        self.say()

    def end(self):
        text, errors = self.process.communicate(timeout=90)
        if self.process.returncode:
            raise RuntimeError(errors[-400:])
        return json.loads(text.splitlines()[-1])


def together(work, seconds, *tenants):
    """Runs (pattern, options) side by side; options None: without Partage. Gives what each said."""
    running = [Tenant(work, seconds, pattern, *([] if given is None else [given])) for pattern, given in tenants]
    for tenant in running:
        tenant.wait_for("loaded")
    # One after the other: each measures what its unit takes alone.
    for tenant in running:
        tenant.say()
        tenant.wait_for("ready")
    for tenant in running:
        tenant.say()
    return [tenant.end() for tenant in running]


def parts(said):
    """Each tenant's part of the time that its work would have taken alone, and the sum as a part of the window."""
    worth = [one["units"] * one["unit_ns"] for one in said]
    window = max(one["seconds"] for one in said) * 1e9
    return [w / max(1, sum(worth)) for w in worth], sum(worth) / window


def percentile(values, of):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * of))] if ordered else 0


def needs_torch(part):
    def judged(work):
        if shell([sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"]).returncode:
            return skip(part.__name__, "PyTorch is not installed here")
        return part(work)

    judged.__doc__ = part.__doc__
    return judged


@needs_torch
def solo(work):
    """S2: a job alone is as fast as without Partage."""
    for pattern in ("gemm 4096", "small", "graph 200 1024"):
        runs = [together(work, 2, (pattern, given))[0] for given in (None, "-m 20%", None, "-m 20%")]
        rates = [run["units"] * run["unit_ns"] / run["seconds"] / 1e9 for run in runs]
        bare, under = max(rates[0::2]), max(rates[1::2])
        measured[f"S2 {pattern}"] = {"bare": round(bare, 4), "partage": round(under, 4)}
        check(f"S2 alone: {pattern}", under >= bare * 0.99, f"{under / bare:.4f} of without Partage")


@needs_torch
def shares(work):
    """S3-S6: shares follow weights and promises, whatever the kernels are, and two saturating tenants lose little."""
    native = together(work, 4, ("gemm 4096", None), ("gemm 4096", None))
    measured["S3 native"] = parts(native)
    got, whole = parts(together(work, 4, ("gemm 4096", "-m 20%"), ("gemm 4096", "-m 20%")))
    measured["S3 partage"] = (got, whole)
    detail = f"{whole:.3f} of one alone, native {parts(native)[1]:.3f}"
    check("S3 two saturating tenants: aggregate", whole >= 0.97, detail)
    scenarios = {
        "S4 3:1": [("gemm 4096", "--weight 300", 0.75), ("gemm 4096", "--weight 100", 0.25)],
        "S4 9:1": [("gemm 4096", "--weight 900", 0.9), ("gemm 4096", "--weight 100", 0.1)],
        "S4 5/15/30/50": [("gemm 2048", f"-c {part}%", part / 100) for part in (5, 15, 30, 50)],
        "S5 small against long kernels": [("small", "-m 10%", 0.5), ("gemm 8192", "-m 10%", 0.5)],
        "S6 graph of 100 ms against small kernels": [("graph 1000 2048", "-m 10%", 0.5), ("small", "-m 10%", 0.5)],
        "S17 sixteen streams against one": [("streams 16 1024", "-m 10%", 0.5), ("gemm 1024", "-m 10%", 0.5)],
    }
    for name, tenants in scenarios.items():
        seconds = 8 if name.startswith("S6") else 4
        got, whole = parts(together(work, seconds, *[(pattern, given) for pattern, given, _ in tenants]))
        worst = max(abs(part - wanted) for part, (_, _, wanted) in zip(got, tenants))
        measured[name] = {"parts": [round(part, 4) for part in got], "aggregate": round(whole, 3)}
        check(name, worst <= 0.01, f"worst error {worst * 100:.2f} points, {[round(part, 3) for part in got]}")


@needs_torch
def bursts(work):
    """S7, S8: tenants with gaps fill each other's, as without Partage."""
    scenarios = (
        ("S7 4 ms on, 4 ms off", "burst 4 4", 2),
        ("S7 a quarter on", "burst 4 12", 4),
        ("S8 200 us on, 100 us off", "burst 0.2 0.1", 2),
    )
    for name, pattern, count in scenarios:
        native = [one["units"] for one in together(work, 3, *[(pattern, None)] * count)]
        under = [one["units"] for one in together(work, 3, *[(pattern, "-m 10%")] * count)]
        measured[name] = {"native": native, "partage": under}
        check(name, sum(under) >= sum(native) * 0.98, f"{sum(under) / max(1, sum(native)):.3f} of native slicing")


@needs_torch
def latency(work):
    """S9, S10: an urgent tenant beside a saturating one."""
    alone = together(work, 4, ("request 10", "-m 10% --priority high"))[0]["latencies"]
    base = percentile(alone, 0.99)
    for pattern in ("small", "gemm 4096", "gemm 8192"):
        row = {}
        for kind, given in (("native", (None, None)), ("partage", ("-m 10% --priority high", "-m 10% --priority low"))):
            said = together(work, 4, ("request 10", given[0]), (pattern, given[1]))
            latencies = said[0]["latencies"]
            p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
            row[kind] = {"p50": p50, "p99": p99, "other_units": said[1]["units"]}
            row["longest_kernel_ns"] = said[1]["unit_ns"]
        measured[f"S9 beside {pattern}"] = row | {"alone_p99": base}
        bound = base + 500_000 + row["longest_kernel_ns"] + 100_000
        detail = f"p99 {row['partage']['p99']} ns, alone {base}, native {row['native']['p99']}, bound {bound:.0f}"
        check(f"S9 an urgent tenant beside {pattern}", row["partage"]["p99"] <= bound, detail)


@needs_torch
def caps(work):
    """S11, S12: a cap holds for a job alone, and follows a change."""
    for part in (10, 25, 50, 75):
        said = together(work, 4, ("gemm 2048", f"-m 10% --compute-max {part}%"))
        got = parts(said)[1]
        measured[f"S11 cap {part}"] = round(got, 4)
        check(f"S11 a cap of {part} %", abs(got - part / 100) <= 0.01, f"{got * 100:.2f} %")
    first = Tenant(work, 6, "gemm 2048", "-m 10% --name step --compute-max 20%")
    first.go()
    time.sleep(3)
    changed = shell([PARTAGE, "set", "step", "compute-max=80%"], env=environment(work))
    got = parts([first.end()])[1]
    measured["S12 20 % then 80 %"] = round(got, 4)
    near = abs(got - 0.5) <= 0.03
    check("S12 a cap that changes", changed.returncode == 0 and near, f"{got * 100:.1f} % over both halves")


@needs_torch
def churn(work):
    """S14, S18: tenants that come, go, are killed, are stopped or hang hold nobody up."""
    steady = Tenant(work, 12, "gemm 2048", "-m 10%")
    steady.go()
    for number in range(4):
        guest = Tenant(work, 30, "gemm 2048", "-m 10%")
        guest.go()
        time.sleep(0.3)
        if number % 2:
            guest.process.send_signal(signal.SIGSTOP)
            time.sleep(0.3)
        guest.process.kill()
        guest.process.communicate()
    got = parts([steady.end()])[1]
    measured["S14 beside guests that are killed and stopped"] = round(got, 3)
    check("S14 churn", got >= 0.5, f"{got:.3f} of the GPU")
    hung = Tenant(work, 8, "hang", "-m 10%")
    hung.go()
    other = together(work, 4, ("gemm 2048", "-m 10%"))
    hung.process.kill()
    hung.process.communicate()
    got = parts(other)[1]
    measured["S18 beside a kernel that does not end"] = round(got, 3)
    check("S18 a hung kernel", got >= 0.4, f"{got:.3f} of the GPU, native slicing gives half")
