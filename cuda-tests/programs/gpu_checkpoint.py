# SPDX-License-Identifier: Apache-2.0
"""A process for the driver's checkpoint API, and a caller of that API.

usage: gpu_checkpoint.py target MODE BYTES
       gpu_checkpoint.py call PID OPERATION [UID [wholly]]

A target fills device memory, says `up`, and after each line of standard input says whether it is what it was. MODE:
plain; registered (host memory too); exported, unmapped (a memory handle too); nvml (asks NVML, too); changes (sets
CUDA_VISIBLE_DEVICES after cuInit); holds (takes all but BYTES, and fills nothing). A call prints the driver's code.
OPERATION: state, lock, checkpoint, restore, identity (a restore with a map of every device to itself), unlock. With UID
the caller becomes that user first, as the broker's helper does: effectively, or wholly; no program is executed after.
"""
import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")
LOCK_MS = 10_000
# The granularity of physical memory.
HANDLE_BYTES = 2 << 20


class GpuPair(ctypes.Structure):
    """CUcheckpointGpuPair, 32 bytes."""
    _fields_ = [("old", ctypes.c_char * 16), ("new", ctypes.c_char * 16)]


class RestoreArgs(ctypes.Structure):
    """CUcheckpointRestoreArgs of CUDA 13.0, 64 bytes."""
    _fields_ = [("pairs", ctypes.POINTER(GpuPair)), ("count", ctypes.c_uint), ("rest", ctypes.c_char * 52)]


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp, 32 bytes."""
    _fields_ = [
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("id", ctypes.c_int),
        ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8),
    ]


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: {code}")


def identity():
    """Every device that this process sees, to itself."""
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    pairs = (GpuPair * count.value)()
    for number, pair in enumerate(pairs):
        uuid, device = (ctypes.c_char * 16)(), ctypes.c_int()
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDeviceGetUuid_v2", uuid, device)
        ctypes.memmove(ctypes.byref(pair), uuid, 16)
        ctypes.memmove(ctypes.byref(pair, 16), uuid, 16)
    return pairs


# The real and saved user of a helper that its user cannot signal (broker/src/helper/process.rs).
NOBODYS = 0xFFFFFFF0


def ask(pid, operation, uid=None, is_wholly=False):
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(*((uid, uid, uid) if is_wholly else (NOBODYS, uid, NOBODYS)))
    call("cuInit", 0)
    if operation == "state":
        state = ctypes.c_int()
        code = cuda.cuCheckpointProcessGetState(pid, ctypes.byref(state))
        return print(code, state.value)
    if operation == "lock":
        arguments = (ctypes.c_uint * 16)(LOCK_MS)
        return print(cuda.cuCheckpointProcessLock(pid, ctypes.byref(arguments)))
    if operation == "identity":
        pairs = identity()
        arguments = RestoreArgs(pairs, len(pairs))
        return print(cuda.cuCheckpointProcessRestore(pid, ctypes.byref(arguments)))
    names = {"checkpoint": "Checkpoint", "restore": "Restore", "unlock": "Unlock"}
    print(getattr(cuda, f"cuCheckpointProcess{names[operation]}")(pid, None))


def handle(is_exported):
    """A memory handle without a mapping. Exported, its descriptor stays open."""
    # Pinned, on device 0, as a file descriptor.
    prop = AllocationProp(type=1, handles=1 if is_exported else 0, location=1, id=0)
    made, descriptor = ctypes.c_uint64(), ctypes.c_int()
    call("cuMemCreate", ctypes.byref(made), ctypes.c_size_t(HANDLE_BYTES), ctypes.byref(prop), ctypes.c_uint64(0))
    if is_exported:
        call("cuMemExportToShareableHandle", ctypes.byref(descriptor), made, 1, ctypes.c_uint64(0))


def nvml_answers():
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
    codes = [nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))]
    codes.append(nvml.nvmlDeviceGetMemoryInfo(device, memory))
    if any(codes):
        sys.exit(f"NVML: {codes}")


def hold_all_but(left):
    free, total, at = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(free.value - left))
    print("up", flush=True)
    sys.stdin.read()


def target(mode, total):
    device, context, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    if mode == "changes":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    if mode == "holds":
        return hold_all_but(total)
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(total))
    call("cuMemsetD8_v2", at, 165, ctypes.c_size_t(total))
    back = ctypes.create_string_buffer(min(total, 64 << 20))
    if mode == "registered":
        call("cuMemHostRegister_v2", back, ctypes.c_size_t(len(back)), 0)
    if mode in ("exported", "unmapped"):
        handle(mode == "exported")
    call("cuCtxSynchronize")
    print("up", flush=True)
    for _ in sys.stdin:
        # The first call after a checkpoint is a synchronise: unheld, drivers 580 and 595 die of it.
        call("cuCtxSynchronize")
        if mode == "nvml":
            nvml_answers()
        call("cuMemcpyDtoH_v2", back, at, ctypes.c_size_t(len(back)))
        print("same" if back.raw.count(165) == len(back) else "it differs", flush=True)


if sys.argv[1] == "call":
    caller = [int(uid) for uid in sys.argv[4:5]]
    ask(int(sys.argv[2]), sys.argv[3], *caller, is_wholly=sys.argv[5:] == ["wholly"])
else:
    target(sys.argv[2], int(sys.argv[3]))
