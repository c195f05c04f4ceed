# SPDX-License-Identifier: Apache-2.0
"""What Partage says of the stages of a checkpoint and of a restore, in seconds."""
import re

# The driver's own part of each.
DRIVERS = ("move its device memory into host memory", "move its memory back to the device")


def seconds(text):
    """A duration as Partage prints it: 35ms, 1.2s, 2m3s."""
    units = {"ms": 0.001, "s": 1, "m": 60}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m)", text))


def stages(text):
    """What each stage took, from what a command or an event says."""
    inside = re.search(r" after \S+ \((.*?)\)", text)
    pairs = [part.rpartition(" ") for part in inside[1].split(", ")] if inside else []
    return {what: seconds(took) for what, _, took in pairs}


def stood(text):
    """For how long the job stood, as a checkpoint says; None where it does not."""
    found = re.search(r"stood for (\S+)", text)
    return found and seconds(found[1])


def back(events):
    """The stages of the last return that `partage events` tells of."""
    lines = [line for line in events.splitlines() if "runs again" in line]
    return stages(lines[-1]) if lines else {}
