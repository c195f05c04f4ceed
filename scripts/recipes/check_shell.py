# SPDX-License-Identifier: Apache-2.0
"""The recipes of the command line: a wrapper in PATH, and tmux."""
import shutil
import subprocess

from machine import CARD, GIB, check, limits, sees


def wrapper(machine, page, _tools):
    page.file("wrapper", machine.home)
    machine.let_go()
    code, _, errors = machine.shell(page.typed("wrapper"))
    check((code, errors) == (0, ""), code, errors)
    for note in machine.seen(3):
        sees(note, 4)
    # The third python was started inside the job of a fourth: that is no job of its own.
    jobs = machine.jobs("--all")
    check([limits(job) for job in jobs] == [[4]] * 3, "three jobs of 4 GiB", jobs)
    # Whoever uses no GPU is no job, and whoever hides the GPUs sees none.
    path = "PATH=~/wrapped:$PATH; "
    code, output, errors = machine.shell(path + "python -c 'print(5)'")
    check((code, output.strip(), errors) == (0, "5", ""), code, output, errors)
    code, _, errors = machine.shell(path + "CUDA_VISIBLE_DEVICES= python train.py")
    check(code == 1 and "cuInit: error 100" in errors, code, errors)
    check(len(machine.jobs("--all")) == 3, "neither is a job", machine.jobs("--all"))
    # Inside a job of more, the job's limit counts, and the wrapper's is said not to.
    machine.forget()
    machine.let_go()
    code, _, errors = machine.shell('PATH=~/wrapped:$PATH; partage run -m 50% -- sh -c "python train.py"')
    sees(machine.seen(1)[0], 8)
    # One line about the limit; the program runs into the job's, which is told once.
    said = [line for line in errors.splitlines() if " asked, limit 8 GiB" not in line]
    check(code == 0 and len(said) == 1 and "limit 4 GiB is not enforced inside a job" in said[0], code, errors)
    check(len(errors.splitlines()) <= 2, "the denial is told once", errors)
    return "bash and sh, also inside a job"


def tmux(machine, page, _tools):
    if not shutil.which("tmux"):
        return None, "tmux is not installed"
    version = subprocess.run(["tmux", "-V"], capture_output=True, text=True).stdout.strip()
    quiet = "tmux new-session -d -s other 'exec sleep 600'"
    # The server is there before the recipe, as anyone's is.
    check(machine.shell(quiet)[0] == 0, "a tmux server starts")
    code, _, errors = machine.shell(page.typed("tmux"))
    check(code == 0, errors)
    sees(machine.seen(1)[0], 4)
    check(limits(machine.working(1)[0]) == [4], machine.jobs())
    machine.let_go()
    machine.wait("the window ends", lambda: not machine.jobs() or not any(job["clients"] for job in machine.jobs()))
    # Before tmux it does not hold, and is said not to.
    machine.forget()
    machine.let_go()
    code, _, errors = machine.shell("partage run -m 25% -- tmux new-window -t other 'python train.py'")
    check(code == 0 and "the limit will not follow tmux" in errors, code, errors)
    sees(machine.seen(1)[0], CARD // GIB, devices=2)
    code, _, errors = machine.shell("partage run --strict -m 25% -- tmux new-window -t other 'python train.py'")
    check(code == 125 and "tmux" in errors, code, errors)
    machine.shell("tmux kill-server")
    # A server started inside a job gives that job's variables to its windows, until they are cleaned.
    machine.forget()
    machine.let_go()
    inside = machine.start(
        ["partage", "run", "-m", "50%", "--", "sh", "-c", f"{quiet}; exec cat"], stdin=subprocess.PIPE)
    machine.wait("the server in the job", lambda: machine.shell("tmux has-session -t other")[0:1] == (0,))
    both = "tmux new-window -t other 'python train.py; partage run -m 25% -- python train.py'"
    machine.shell(both)
    in_job, limited = machine.seen(2)
    sees(in_job, 8)
    sees(limited, 4)
    code, _, errors = machine.shell(page.typed("tmux-clean"))
    check(code == 0, errors)
    machine.forget()
    machine.let_go()
    machine.shell(both)
    free, limited = machine.seen(2)
    sees(free, CARD // GIB, devices=2)
    sees(limited, 4)
    inside.stdin.close()
    machine.shell("tmux kill-server")
    return version
