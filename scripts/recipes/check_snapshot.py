# SPDX-License-Identifier: Apache-2.0
"""The recipe of a machine that is taken away: a job is saved, ended, restored, and saved again."""
import os
import shutil

from machine import check, limits, sees


def spot(machine, page, _tools):
    if os.geteuid() != 0:
        return None, "only root may run CRIU"
    if not (os.environ.get("PARTAGE_CRIU") or shutil.which("criu")):
        return None, "CRIU is not installed (scripts/criu)"
    path = page.file("spot", machine.home)
    notice = page.typed("spot-notice")
    snapshot = machine.home / "train-snapshot"
    sessions = {"start_new_session": True}
    script = machine.start(["/bin/sh", str(path)], **sessions)
    sees(machine.seen(1)[0], 4)
    program = machine.working(1)[0]
    check(program["name"] == "train" and limits(program) == [4], program)
    for generation in (1, 2):
        code, output, errors = machine.shell(notice)
        check(code == 0 and f"generation {generation}: " in output and "it has ended" in output, code, output, errors)
        check(script.wait(timeout=60) != 0, "the training has not ended well")
        machine.wait("it has ended", lambda: not any(job["clients"] for job in machine.jobs()))
        # What would be another machine.
        script = machine.start(["/bin/sh", str(path)], **sessions)
        job = machine.working(1)[0]
        check(job["name"] == "train" and limits(job) == [4] and job["job"] != program["job"], job)
        program = job
    machine.let_go()
    check(script.wait(timeout=60) == 0 and not snapshot.exists(), "it ended well, and its snapshots are gone")
    check(len(machine.seen(1)) == 1, "the program began once", machine.seen(1))
    return "restored twice"
