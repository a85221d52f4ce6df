//! Detects that a thread was switched out, with two loads and no system call.
//!
//! A thread that has an area of restartable sequences (rseq(2); the C library gives one to every thread,
//! since glibc 2.35) may leave the address of such a sequence there. The kernel removes it "when it detects
//! that it is preempting or delivering a signal outside of the range targeted by the rseq_cs" (linux/rseq.h).
//! A sequence that is never run is therefore a mark that is gone after the thread was switched out. Whether
//! this kernel does so at every switch is tried before it is relied on: kernels that put the work off until
//! it matters may not.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

/// `struct rseq_cs` of linux/rseq.h.
#[repr(C, align(32))]
struct Sequence {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

/// What the kernel wants to find before the place where an aborted sequence goes on (`RSEQ_SIG` of x86).
const SIGNATURE: u32 = 0x5305_3053;

/// The area's member `rseq_cs`, from its beginning.
const SEQUENCE_AT: isize = 8;

/// The sequence that marks refer to.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there are none on other architectures"))]
struct Marks {
    /// From the thread's pointer to its area's `rseq_cs`.
    offset: isize,
    /// The address of the sequence that is left there.
    sequence: u64,
}

thread_local! {
    /// How often the mark of this thread was found removed.
    static TIMES_AWAY: Cell<u64> = const { Cell::new(0) };
}

/// `None` where the system does not support it.
static MARKS: OnceLock<Option<Marks>> = OnceLock::new();

/// A count that changes when this thread is switched out; `None` if this system does not support it. Call
/// [`is_supported`] first.
#[inline]
pub(super) fn switches() -> Option<u64> {
    let marks = MARKS.get()?.as_ref()?;
    if marks.is_gone_and_renewed() {
        TIMES_AWAY.set(TIMES_AWAY.get() + 1);
    }
    Some(TIMES_AWAY.get())
}

/// Whether this system supports it, probed once.
pub(super) fn is_supported() -> bool {
    MARKS.get_or_init(|| find_marks().filter(Marks::hold)).is_some()
}

impl Marks {
    /// Whether the calling thread's mark is gone; if so it is put there again.
    #[inline]
    fn is_gone_and_renewed(&self) -> bool {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        {
            let mark = std::ptr::with_exposed_provenance_mut::<u64>(
                thread_pointer().wrapping_add_signed(self.offset),
            );
            // SAFETY: the C library has an area at this distance from every thread's pointer, which lives as
            // long as the thread and is written by it and the kernel alone. What is written there
            // is the address of a sequence that lives for ever, whose signature the kernel can
            // check, and in whose range no instruction lies that is run.
            unsafe {
                if mark.read_volatile() == 0 {
                    mark.write_volatile(self.sequence);
                    return true;
                }
            }
        }
        false
    }

    /// Whether the kernel removes the mark of a thread that sleeps, and of no other.
    fn hold(&self) -> bool {
        const TRIES: usize = 20;
        let stays = || {
            self.is_gone_and_renewed();
            crate::trace::call_nothing();
            !self.is_gone_and_renewed()
        };
        let goes = || {
            self.is_gone_and_renewed();
            std::thread::sleep(Duration::from_micros(1));
            self.is_gone_and_renewed()
        };
        // A thread may lose its CPU in a call that does not wait; and a short sleep may be over before it has
        // left the CPU.
        (0..TRIES).filter(|_| stays()).count() > TRIES / 2
            && (0..TRIES).filter(|_| goes()).count() >= TRIES * 9 / 10
    }
}

/// Where the C library keeps the area; `None` if it has none, or on another architecture.
fn find_marks() -> Option<Marks> {
    static SIGNED: [u32; 2] = [SIGNATURE, 0];
    static SEQUENCE: OnceLock<Sequence> = OnceLock::new();
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return None;
    }
    // glibc's manual, "Restartable Sequences": both are of the loaded library, so they are asked for when it
    // runs.
    let size = symbol::<u32>(c"__rseq_size")?;
    let offset = symbol::<isize>(c"__rseq_offset")?;
    if size == 0 {
        return None;
    }
    let sequence = SEQUENCE.get_or_init(|| {
        let own = (&raw const SEQUENCE).expose_provenance() as u64;
        Sequence {
            version: 0,
            flags: 0,
            start: own,
            length: 1,
            abort: (&raw const SIGNED[1]).expose_provenance() as u64,
        }
    });
    let sequence = std::ptr::from_ref(sequence).expose_provenance() as u64;
    Some(Marks { offset: offset + SEQUENCE_AT, sequence })
}

/// A constant of the C library by its name.
fn symbol<T: Copy>(name: &std::ffi::CStr) -> Option<T> {
    // SAFETY: the name is terminated; the default handle needs no opening.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the library declares both as constants of the types they are asked for.
    (!found.is_null()).then(|| unsafe { found.cast::<T>().read() })
}

/// The address that the C library finds a thread's own data by (the ABI of thread-local storage, x86-64: at
/// `fs:0`).
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: on x86-64 Linux `fs:0` holds this address in every thread; it is only read.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}
