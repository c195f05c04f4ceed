# SPDX-License-Identifier: Apache-2.0
"""Cases of a training: against the CPU, bare and limited, beside another one, moved and saved at random moments."""
import time

from machine import Machine

MODELS = ("mlp", "cnn", "transformer")
# How far a loss may be from the CPU's: sums are taken in another order.
NEAR = 1e-5


def losses_of(path):
    *losses, weights = path.read_text().split()
    return [float.fromhex(loss) for loss in losses], weights


def as_on_the_cpu(tools):
    """Ten steps of each model: losses near the CPU's, bare; the same bits under a limit and as a graph's replay."""
    with Machine(tools.partage, tools.work, "cpu") as machine:
        worst = 0.0
        for model in MODELS:
            results = {}
            for where, run in (("cpu", ()), ("cuda", ()), ("cuda", ("-m", "25%")), ("graph", ())):
                name = f"{model}-{where}-{len(run)}"
                machine.program([tools.python, tools.program("train"), model, "10", where, machine.folder / name], run)
                results[where, run] = losses_of(machine.folder / name)
            cpu, bare = results["cpu", ()][0], results["cuda", ()][0]
            worst = max(worst, *(abs(a - b) for a, b in zip(cpu, bare)))
            assert cpu[-1] < cpu[0], f"{model} learns nothing: {cpu}"
            assert worst < NEAR, f"{model}: {worst} from the CPU's: {cpu} {bare}"
            assert results["cuda", ()] == results["cuda", ("-m", "25%")], f"{model}: other bits under a limit"
            graph = results["graph", ()][0]
            assert max(abs(a - b) for a, b in zip(cpu, graph)) < NEAR, f"{model}: a graph's replay differs: {graph}"
    return f"mlp, cnn, transformer: at most {worst:.1e} from the CPU's losses; -m 25%: the same bits"


def beside_another(tools):
    """A training under a cap beside a second one: the same bits, and both end."""
    with Machine(tools.partage, tools.work, "beside") as machine:
        train = [tools.python, tools.program("train"), "transformer"]
        machine.program([*train, "40", "cuda", machine.folder / "bare"])
        long = [*train, "2000", "cuda", machine.folder / "other"]
        other = machine.start(long, ("-c", "60%", "--name", "other"), QUIET="1")
        machine.wait_for_job("other", other)
        machine.program([*train, "40", "cuda", machine.folder / "shared"], ("-c", "30%", "-g", "0"))
        assert other.poll() is None, "the other training ended first: nothing was shared"
        other.terminate()
        other.wait(60)
        assert (machine.folder / "bare").read_text() == (machine.folder / "shared").read_text(), "other bits"
    return "-c 30% beside a training with -c 60%: the same 40 losses and weights"


def moved(tools, draw, times, model="transformer", steps=300, pause=0.02):
    """Suspend, resume, migrate, save with --stop and restore, each at a random moment of one training."""
    seconds = steps * pause
    with Machine(tools.partage, tools.work, "moved") as machine:
        train = [tools.python, tools.program("train"), model, str(steps), "cuda"]
        machine.program([*train, machine.folder / "bare"])
        for turn in range(times):
            result, saved = machine.folder / f"moved-{turn}", machine.folder / f"saved-{turn}"
            job = ("-m", "25%", "-g", "0", "--name", f"t{turn}")
            process = machine.start([*train, result, str(pause)], job, QUIET="1")
            machine.wait_for_job(f"t{turn}", process)
            for verb in (["suspend"], ["resume"], ["migrate", "--to", "1"], ["migrate", "--to", "0"]):
                time.sleep(draw.uniform(0, seconds / 6))
                machine.command(verb[0], f"t{turn}", *verb[1:])
            time.sleep(draw.uniform(0, seconds / 6))
            assert process.poll() is None, f"the training ended before it was saved: {machine.output()[-2000:]}"
            machine.command("checkpoint", f"t{turn}", "--out", str(saved), "--stop")
            process.wait(60)
            machine.program([machine.partage, "restore", saved])
            assert result.read_text() == (machine.folder / "bare").read_text(), f"other bits in turn {turn}"
    return f"{times} × suspend, resume, migrate twice, checkpoint --stop, restore: the same bits, {steps} steps"


def graph_suspended(tools):
    """A graph is replayed across a suspend and a resume."""
    with Machine(tools.partage, tools.work, "graph") as machine:
        words = [tools.python, tools.program("graphs"), "200"]
        machine.program([*words, machine.folder / "bare"])
        process = machine.start([*words, machine.folder / "suspended", "0.02"], ("-m", "25%", "--name", "g"))
        machine.wait_for_job("g", process)
        for verb in ("suspend", "resume", "suspend", "resume"):
            time.sleep(0.5)
            machine.command(verb, "g")
        assert process.wait(120) == 0, machine.output()[-2000:]
        assert (machine.folder / "bare").read_text() == (machine.folder / "suspended").read_text()
    return "200 replays across two suspends: the same bits"


def compiled(tools, draw, times):
    """(A) 3,000 compiled steps: near the CPU's, and the same output limited, moved, saved and restored."""
    steps = "3000"
    with Machine(tools.partage, tools.work, "compiled") as machine:
        words = [tools.compiled_python, tools.program("compiled"), steps]
        machine.program([*words, machine.folder / "bare", "0", "cuda"])
        machine.program([*words, machine.folder / "cpu", "0", "cpu"])
        bare, cpu = losses_of(machine.folder / "bare")[0], losses_of(machine.folder / "cpu")[0]
        worst = max(abs(a - b) for a, b in zip(bare[:10], cpu[:10]))
        assert worst < NEAR, f"{worst} from the CPU's in ten steps"
        for turn in range(times):
            result, saved = machine.folder / f"moved-{turn}", machine.folder / f"saved-{turn}"
            job = ("-m", "2GiB", "-g", "0", "--name", f"c{turn}")
            process = machine.start([*words, result, "0.004"], job, QUIET="1")
            machine.wait_for_job(f"c{turn}", process)
            for verb in (["suspend"], ["resume"], ["migrate", "--to", "1"]):
                time.sleep(draw.uniform(0, 2))
                machine.command(verb[0], f"c{turn}", *verb[1:])
            time.sleep(draw.uniform(0, 2))
            machine.command("checkpoint", f"c{turn}", "--out", str(saved), "--stop")
            process.wait(60)
            machine.program([machine.partage, "restore", saved])
            assert result.read_text() == (machine.folder / "bare").read_text(), f"other bits in turn {turn}"
    return f"{steps} compiled steps: {worst:.1e} from the CPU's; {times} × limited, moved, saved, restored: the same"
