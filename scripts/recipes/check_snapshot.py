# SPDX-License-Identifier: Apache-2.0
"""The recipe of a machine that is taken away: a job is saved, ended, restored, and saved again."""
import os

from machine import check, limits, sees


def running(machine):
    """The one job, once its program is on the GPU, and back there."""
    def found():
        jobs = [job for job in machine.jobs() if job["clients"]]
        return jobs[0] if [job["state"] for job in jobs] == ["running"] else None

    return machine.wait("the job runs", found)


def spot(machine, page, _tools):
    if os.geteuid() != 0:
        return None, "only root may run CRIU"
    if not os.environ.get("PARTAGE_CRIU"):
        return None, "PARTAGE_CRIU names no CRIU (scripts/criu gives one)"
    path = page.file("spot", machine.home)
    notice = page.typed("spot-notice")
    snapshot = machine.home / "train-snapshot"
    sessions = {"start_new_session": True}
    script = machine.start(["/bin/sh", str(path)], **sessions)
    sees(machine.seen(1)[0], 4)
    program = running(machine)
    check(program["name"] == "train" and limits(program) == [4], program)
    for generation in (1, 2, 3):
        code, output, errors = machine.shell(notice)
        check(code == 0 and f"generation {generation}: " in output and "it has ended" in output, code, output, errors)
        check(generation == 3 or script.wait(timeout=60) != 0, "the training has not ended well")
        machine.wait("it has ended", lambda: not any(job["clients"] for job in machine.jobs()))
        if generation == 2:
            # A shell that reads what a detached restore says does not wait for the job.
            code, output, errors = machine.shell("echo \"$(partage restore ~/train-snapshot --detach 2>&1)\"")
            check(code == 0 and "runs again" in output, code, output, errors)
            program = running(machine)
            continue
        # What would be another machine.
        script = machine.start(["/bin/sh", str(path)], **sessions)
        job = running(machine)
        check(job["name"] == "train" and limits(job) == [4] and job["job"] != program["job"], job)
        program = job
    machine.let_go()
    check(script.wait(timeout=60) == 0 and not snapshot.exists(), "it ended well, and its snapshots are gone")
    check(len(machine.seen(1)) == 1, "the program began once", machine.seen(1))
    return "restored three times"
