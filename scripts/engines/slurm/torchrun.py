# SPDX-License-Identifier: Apache-2.0
"""torchrun under srun: all workers of a step are in the job's control group and share its limit.

usage: torchrun.py BUILT SLURM VENV      `scripts/engines/slurm/torchrun` calls this, in a mount namespace
"""
import json
import os
import pathlib
import shutil
import sys
import traceback

from node import CARD, ROOT, Node, own_folders

SHARDS = 5


def tried(node, venv):
    """The workers' notes, while they hold what they got."""
    folder = node.home / "work"
    folder.mkdir()
    shutil.copy(ROOT / "scripts/recipes/see_limit.py", folder / "train.py")
    with open("/etc/ld.so.preload", "w") as file:
        file.write(f"{node.programs}/libpartage.so\n")
    # Of root's: other users may not read the build folder.
    launcher = [pathlib.Path(venv) / "bin/torchrun", "--nproc-per-node", "2", folder / "train.py"]
    step = node.cluster.begin("srun", "--quiet", "--unbuffered", f"--gres=shard:{SHARDS}", *launcher)

    def notes():
        assert step.poll() is None, step.stdout.read()
        lines = (folder / "seen").read_text().splitlines() if (folder / "seen").exists() else []
        return lines if len(lines) == 2 else None

    seen = [json.loads(line) for line in node.wait("two workers on the GPU", notes)]
    jobs = node.jobs()
    (folder / "go").touch()
    said, _ = step.communicate(timeout=120)
    assert step.returncode == 0, said
    # Both see the job's limit. What they take, 60 % of it at a time, fits once for both of them.
    half = CARD * SHARDS // 10
    assert [note["total"] for note in seen] == [half, half], seen
    assert sorted(sum((note["results"] for note in seen), [])) == [0, 2, 2, 2], seen
    assert len(jobs) == 1 and jobs[0]["engine"]["words"] == f"shard:{SHARDS} of 10", jobs
    node.wait("the job is over", lambda: not node.jobs())


def main():
    built, slurm, venv = sys.argv[1:]
    give_back = own_folders()
    node, failed = None, 0
    try:
        node = Node(built, slurm)
        tried(node, venv)
        version = (pathlib.Path(venv) / "lib").glob("python3*/site-packages/torch-*.dist-info")
        print(f"tried: torchrun under Slurm: two workers share {SHARDS} of 10 shards, {next(version).stem}", flush=True)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(node.logs() if node else "no node")
        print("FAILED: torchrun under Slurm", flush=True)
        failed = 1
    finally:
        if os.path.lexists("/etc/ld.so.preload"):
            os.unlink("/etc/ld.so.preload")
        if node:
            node.close()
        give_back()
    print(f"checks: {1 - failed} passed {failed} failed")
    return failed


sys.exit(main())
