# SPDX-License-Identifier: Apache-2.0
"""Keeps a GPU busy with kernels of one millisecond, a few in flight, until it is stopped. usage: busy.py [SECONDS]

Plain ctypes on the driver API: what the pages show where two programs want a GPU's time.
"""
import ctypes as c
import sys
import time

KERNEL = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin_ns(.param .u64 ns)
{
    .reg .pred %p;
    .reg .b64 %limit, %start, %now;
    ld.param.u64 %limit, [ns];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %p, %now, %limit;
    @%p bra again;
    ret;
}
"""
IN_FLIGHT = 4
driver = c.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    if result:
        sys.exit(f"{name}: error {result}")


end = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else float("inf"))
context, module, kernel, stream = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", c.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", c.byref(module), c.c_char_p(KERNEL))
call("cuModuleGetFunction", c.byref(kernel), module, b"spin_ns")
call("cuStreamCreate", c.byref(stream), 1)
events = [c.c_void_p() for _ in range(IN_FLIGHT)]
for event in events:
    # Blocking, without times: the program sleeps while it waits.
    call("cuEventCreate", c.byref(event), 3)
nanoseconds = c.c_uint64(1_000_000)
arguments = (c.c_void_p * 1)(c.cast(c.byref(nanoseconds), c.c_void_p))
count = 0
while time.monotonic() < end:
    event = events[count % IN_FLIGHT]
    if count >= IN_FLIGHT:
        call("cuEventSynchronize", event)
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)
    call("cuEventRecord", event, stream)
    count += 1
call("cuStreamSynchronize", stream)
print(f"{count} kernels of 1 ms")
