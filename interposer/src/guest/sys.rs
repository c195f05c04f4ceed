// SPDX-License-Identifier: Apache-2.0
//! System calls made directly, so that nothing of ours passes through `errno`, through a library that another preload
//! put in front of libc, or through a symbol version.
//!
//! Every call answers the kernel's own number: zero or more is a result, less is `-errno`. Libc is used only where the
//! kernel cannot help: the dynamic linker, the environment, threads and `clone` with a new stack.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::guest::text::{self, Text};

// Said here because the `libc` crate says it only in a build where nobody wants its `std` feature.
#[link(name = "c")]
unsafe extern "C" {}

/// `-errno` of a call that a signal interrupted.
pub const EINTR: isize = -(libc::EINTR as isize);

/// One system call with six arguments.
///
/// # Safety
/// As the call itself: pointers among the arguments are valid for what the kernel does with them.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention; rcx and r11 are what it destroys.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    result
}

/// One system call with six arguments.
///
/// # Safety
/// As the call itself: pointers among the arguments are valid for what the kernel does with them.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention.
    unsafe {
        core::arch::asm!("svc 0", in("x8") number, inlateout("x0") a[0] => result, in("x1") a[1], in("x2") a[2],
            in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: each caller in this file and its children passes references, or pointers that its own contract
        // vouches for.
        unsafe { call(libc::$number, pad([$($argument as usize),*])) }
    };
}

mod memory;
mod rights;
mod socket;

pub use memory::*;
pub use rights::*;
pub use socket::*;

fn pad<const N: usize>(arguments: [usize; N]) -> [usize; 6] {
    let mut padded = [0; 6];
    for (to, from) in padded.iter_mut().zip(arguments) {
        *to = from;
    }
    padded
}

/// Closes a descriptor.
pub fn close(fd: c_int) {
    let _ = call!(SYS_close, fd);
}

/// Writes once; answers the bytes written.
pub fn write(fd: c_int, bytes: &[u8]) -> isize {
    call!(SYS_write, fd, bytes.as_ptr(), bytes.len())
}

/// Reads once; answers the bytes read.
pub fn read(fd: c_int, buffer: &mut [u8]) -> isize {
    call!(SYS_read, fd, buffer.as_mut_ptr(), buffer.len())
}

/// Opens a path, always close-on-exec.
pub fn open(path: &CStr, flags: c_int, mode: u32) -> isize {
    call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, mode)
}

/// Opens a file that shows this process. `/proc/self` is the first thread, and shows nothing once that one has ended;
/// `/proc/thread-self` shows the same process by this thread, from Linux 3.17 on.
pub fn open_own(file: &CStr, flags: c_int) -> isize {
    let of = |folder: &str| {
        let mut path = Text::<64>::new();
        path.push(folder).push(file.to_bytes());
        open(path.as_c_str(), flags, 0)
    };
    match of("/proc/thread-self/") {
        fd if fd >= 0 => fd,
        _ => of("/proc/self/"),
    }
}

/// Maps memory or a file. Answers `None` when the kernel refuses.
pub fn map(length: usize, protection: c_int, flags: c_int, fd: c_int) -> Option<*mut c_void> {
    let address = call!(SYS_mmap, 0, length, protection, flags, fd, 0);
    (address > 0).then_some(address as *mut c_void)
}

/// Private zeroed memory. Answers `None` when the kernel refuses.
pub fn map_private(length: usize) -> Option<*mut c_void> {
    map(
        length,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        -1,
    )
}

/// Undoes [`map`].
///
/// # Safety
/// Nothing refers to the mapping any more.
pub unsafe fn unmap(address: *mut c_void, length: usize) {
    let _ = call!(SYS_munmap, address, length);
}

/// Is there such a file, as far as this process may look?
pub fn exists(path: &CStr) -> bool {
    call!(SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::F_OK) == 0
}

/// `madvise`; `true` when the kernel took it.
pub fn advise(address: *mut c_void, length: usize, advice: c_int) -> bool {
    call!(SYS_madvise, address, length, advice) == 0
}

/// This process's id, always asked anew.
pub fn pid() -> u32 {
    call!(SYS_getpid) as u32
}

/// The effective user's id.
pub fn effective_uid() -> u32 {
    call!(SYS_geteuid) as u32
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = call!(SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// By how much the monotonic clock of this process's time namespace is ahead of the machine's, in nanoseconds. 0 where
/// the kernel has no such namespaces or does not say.
pub fn clock_offset_ns() -> i64 {
    let inode = |path| {
        let fd = c_int::try_from(open_own(path, libc::O_RDONLY))
            .ok()
            .filter(|fd| *fd >= 0)?;
        let inode = identity(fd);
        close(fd);
        inode
    };
    // The offsets are those of the children, which may be born into another namespace.
    if inode(c"ns/time") != inode(c"ns/time_for_children") {
        return 0;
    }
    let Ok(fd) = c_int::try_from(open(c"/proc/self/timens_offsets", libc::O_RDONLY, 0)) else {
        return 0;
    };
    if fd < 0 {
        return 0;
    }
    let mut buffer = [0; 256];
    let length = read(fd, &mut buffer);
    close(fd);
    let text = buffer.get(..usize::try_from(length).unwrap_or(0)).unwrap_or(&[]);
    text::monotonic_offset(text).unwrap_or(0)
}

/// The time of day in microseconds since 1970, which NVML's samples carry.
pub fn epoch_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = call!(SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut time);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000)
        .wrapping_add(time.tv_nsec as u64 / 1_000)
}

/// Sleeps until the monotonic clock passed `duration_ns`, however many signals arrive.
pub fn sleep_ns(duration_ns: u64) {
    let end = now_ns().wrapping_add(duration_ns);
    loop {
        let left = end.saturating_sub(now_ns());
        if left == 0 {
            return;
        }
        let time = timespec(left);
        let _ = call!(SYS_nanosleep, &raw const time, 0);
    }
}

fn timespec(duration_ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (duration_ns / 1_000_000_000) as _,
        tv_nsec: (duration_ns % 1_000_000_000) as _,
    }
}

/// Sleeps while `*word == value`, at most so long; woken by [`wake_one`].
pub fn wait_on(word: &core::sync::atomic::AtomicU32, value: u32, timeout_ns: u64) {
    let time = timespec(timeout_ns);
    let _ = call!(
        SYS_futex,
        word.as_ptr(),
        libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
        value,
        &raw const time
    );
}

/// Wakes one thread in [`wait_on`].
pub fn wake_one(word: &core::sync::atomic::AtomicU32) {
    let _ = call!(SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
}

/// Sleeps while `*word == value`, at most so long; the word is shared with another process, which wakes. Also back when
/// a signal was caught. The page need not be writable.
pub fn wait_on_shared(word: &core::sync::atomic::AtomicU32, value: u32, timeout_ns: u64) {
    let time = timespec(timeout_ns);
    let _ = call!(SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time);
}

/// The calling thread's id.
pub fn thread_id() -> u32 {
    call!(SYS_gettid) as u32
}

/// Is there a thread of that id in this process?
pub fn has_thread(id: u32) -> bool {
    call!(SYS_tgkill, pid(), id, 0) != -(libc::ESRCH as isize)
}

/// The time of a processor that a thread of this process took so far; 0 where the kernel does not say.
pub fn thread_time_ns(thread: u32) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The kernel's number for the clock of one thread: its id inverted, for a thread (4), as it is scheduled (2).
    let clock = !(thread as c_int) << 3 | 4 | 2;
    if call!(SYS_clock_gettime, clock, &raw mut time) != 0 {
        return 0;
    }
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// The alternate stack of signals that this thread stands on. `None`: it stands on its own.
pub fn alternate_stack() -> Option<core::ops::Range<usize>> {
    let mut stack = libc::stack_t {
        ss_sp: core::ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    let result = call!(SYS_sigaltstack, 0, &raw mut stack);
    let start = stack.ss_sp as usize;
    (result == 0 && stack.ss_flags & libc::SS_ONSTACK != 0).then(|| start..start.saturating_add(stack.ss_size))
}

/// The stack pointer of a thread of this process that sleeps in the kernel. `None`: it runs, or the kernel does not
/// say.
pub fn stack_pointer_of(thread: u32) -> Option<usize> {
    let mut path = Text::<64>::new();
    path.push("/proc/self/task/")
        .push_number(thread.into())
        .push("/syscall");
    let fd = c_int::try_from(open(path.as_c_str(), libc::O_RDONLY, 0)).ok()?;
    if fd < 0 {
        return None;
    }
    let mut buffer = [0; 256];
    let length = read(fd, &mut buffer);
    close(fd);
    let line = buffer.get(..usize::try_from(length).ok()?)?;
    // The number of the call, its arguments, the stack pointer, where it goes on: `running` is one word.
    let mut words = line.trim_ascii_end().rsplit(|byte| *byte == b' ');
    let (_next, pointer) = (words.next()?, words.next()?);
    let digits = pointer.strip_prefix(b"0x")?;
    digits.iter().try_fold(0_usize, |value, digit| {
        Some(value << 4 | usize::from(text::hex_digit(*digit)?))
    })
}

/// `MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED`, which the `libc` crate knows for one C library only.
const REGISTER_GLOBAL_EXPEDITED: c_int = 1 << 2;

/// Has this process take part in the barriers that others ask for with `MEMBARRIER_CMD_GLOBAL_EXPEDITED`; `false` where
/// the kernel cannot.
pub fn join_barriers() -> bool {
    call!(SYS_membarrier, REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0
}

/// What a descriptor refers to: device and inode number. `None` for a closed descriptor.
pub fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: `stat` is plain numbers; zero is a value of each.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    (call!(SYS_fstat, fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
}

/// A close-on-exec duplicate with a number of at least `minimum`.
pub fn duplicate_above(fd: c_int, minimum: c_int) -> isize {
    call!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, minimum)
}

/// The soft limit on descriptor numbers.
pub fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 256,
        rlim_max: 256,
    };
    let _ = call!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, &raw mut limit);
    limit.rlim_cur
}

/// Takes the whole-file lock without waiting; `true` when taken.
pub fn lock_file(fd: c_int) -> bool {
    call!(SYS_flock, fd, libc::LOCK_EX | libc::LOCK_NB) == 0
}

/// Lets go of the whole-file lock, also where a child that was forked meanwhile has the same open file.
pub fn unlock_file(fd: c_int) {
    let _ = call!(SYS_flock, fd, libc::LOCK_UN);
}

/// Reads at an offset; answers the bytes read.
pub fn read_at(fd: c_int, buffer: &mut [u8], offset: u64) -> isize {
    call!(SYS_pread64, fd, buffer.as_mut_ptr(), buffer.len(), offset)
}

/// Writes at an offset; answers the bytes written.
pub fn write_at(fd: c_int, bytes: &[u8], offset: u64) -> isize {
    call!(SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), offset)
}

/// Makes a folder for its owner alone; an error when there is one already.
pub fn make_folder(path: &CStr) {
    let _ = call!(SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700);
}

/// Does an open file or folder belong to this user, and may nobody else write to it?
pub fn is_own(fd: c_int) -> bool {
    // SAFETY: `stat` is plain numbers; zero is a value of each.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    call!(SYS_fstat, fd, &raw mut stat) == 0 && stat.st_uid == effective_uid() && stat.st_mode & 0o022 == 0
}

/// Is the descriptor a terminal?
pub fn is_terminal(fd: c_int) -> bool {
    let mut size = [0_u16; 4];
    call!(SYS_ioctl, fd, libc::TIOCGWINSZ, size.as_mut_ptr()) == 0
}

/// Replaces the calling thread's signal mask; answers the former one.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut former = 0_u64;
    let _ = call!(
        SYS_rt_sigprocmask,
        libc::SIG_SETMASK,
        &raw const mask,
        &raw mut former,
        8
    );
    former
}

/// Does the signal wait for this thread or process?
pub fn is_pending(signal: c_int) -> bool {
    let mut pending = 0_u64;
    let result = call!(SYS_rt_sigpending, &raw mut pending, 8);
    result == 0 && pending & (1 << (signal - 1)) != 0
}

/// Takes back a blocked signal that waits for this thread.
pub fn take_pending(signal: c_int) {
    let set = 1_u64 << (signal - 1);
    let none = timespec(0);
    let _ = call!(SYS_rt_sigtimedwait, &raw const set, 0, &raw const none, 8);
}

/// Gives every signal its default action. For a new process only: handlers belong to the program.
pub fn reset_signal_actions() {
    let default = [0_usize; 4];
    for signal in 1..=64 {
        let _ = call!(SYS_rt_sigaction, signal, default.as_ptr(), 0, 8);
    }
}

/// Makes the calling process a session of its own.
pub fn new_session() {
    let _ = call!(SYS_setsid);
}

/// Changes the calling process's working folder to `/`.
pub fn leave_folder() {
    let _ = call!(SYS_chdir, c"/".as_ptr());
}

/// Makes `to` refer to what `from` refers to.
pub fn duplicate_to(from: c_int, to: c_int) {
    let _ = call!(SYS_dup3, from, to, 0);
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: c_int) {
    if call!(SYS_close_range, first, u32::MAX, 0) != 0 {
        // Kernels before 5.9. The bound keeps an unlimited process from spending seconds here.
        let last = descriptor_limit().min(65_536) as c_int;
        for fd in first..last {
            close(fd);
        }
    }
}

/// Starts a program in place of this process; answers only when that failed.
///
/// # Safety
/// Both arrays end with a null pointer and hold zero-terminated strings.
pub unsafe fn execute(path: &CStr, arguments: *const *const c_char, environment: *const *const c_char) -> isize {
    call!(SYS_execve, path.as_ptr(), arguments, environment)
}

/// Waits for one child, those without an exit signal included.
pub fn wait_for(pid: c_int) {
    while call!(SYS_wait4, pid, 0, libc::__WALL, 0) == EINTR {}
}

/// Ends the calling process at once.
pub fn exit_now(code: c_int) -> ! {
    loop {
        let _ = call!(SYS_exit_group, code);
    }
}

/// Names the calling thread, for `ps -L` and debuggers.
pub fn name_thread(name: &CStr) {
    let _ = call!(SYS_prctl, libc::PR_SET_NAME, name.as_ptr());
}

/// Shows every entry of the environment, `NAME=value`, each followed by a zero in memory.
pub fn each_variable(mut show: impl FnMut(&'static [u8])) {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: libc's variable; null or an array that ends with null.
    let mut entry = unsafe { environ };
    // SAFETY: not past the final null yet.
    while !entry.is_null() && !unsafe { *entry }.is_null() {
        // SAFETY: entries are C strings, which libc keeps while nobody changes them, as with `getenv`.
        show(unsafe { text::bytes_of(*entry) });
        // SAFETY: as above.
        entry = unsafe { entry.add(1) };
    }
}
