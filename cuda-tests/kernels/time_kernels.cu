// SPDX-License-Identifier: Apache-2.0
// Kernels whose length somebody else decides. Compiled to time_kernels.ptx; see README.md. The simulated driver knows
// them by name: they occupy its device until they are over, and its CPU not at all.

// Ends when the word has reached `value` (as cuStreamWaitValue64 compares), as the kernels of collectives wait for
// their peers.
extern "C" __global__ void spin_until(const volatile unsigned long long *word, unsigned long long value)
{
    while ((long long)(*word - value) < 0)
        ;
}

// Never ends.
extern "C" __global__ void spin_for_ever(void)
{
    for (;;)
        asm volatile("nanosleep.u32 1000;");
}
