//! The client for C: `include/kagiri_qos.h`, which documents it.
//!
//! `unsafe`: C finds functions by their names, which must not be mangled, and hands over pointers. No panic
//! leaves a function: it would abort the program.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use crate::client::{Client, Error, FOLDER, Report, Statement};
use crate::wire::{CLASS_BYTES_MAX, UNLIMITED};

/// A call failed inside this library.
const INTERNAL: c_int = -100;

/// `struct kagiri_qos_report`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CReport {
    rate_bit_per_s: u64,
    need_bit_per_s: u64,
    size_bytes: u64,
    target_us: u64,
    messages: u64,
    in_time: u64,
    sockets: u32,
    paced: u32,
    class_name: [c_char; CLASS_BYTES_MAX + 1],
}

/// Makes a client, which waits up to `deadline_ms` in each call.
#[unsafe(no_mangle)]
pub extern "C" fn kagiri_qos_connect(deadline_ms: c_uint) -> *mut Client {
    let deadline = Duration::from_millis(u64::from(deadline_ms));
    let client = catch_unwind(|| Box::new(Client::with(Path::new(FOLDER), deadline)));
    client.map_or(std::ptr::null_mut(), Box::into_raw)
}

/// States class, size and target.
///
/// # Safety
/// `client` is null or of [`kagiri_qos_connect`], `class_name` null or a string, `report` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kagiri_qos_state(
    client: *mut Client,
    class_name: *const c_char,
    size_bytes: u64,
    target_us: u64,
    report: *mut CReport,
) -> c_int {
    let class = match class_name.is_null() {
        true => Ok(""),
        // SAFETY: the caller's string ends with a zero byte, and outlives the call.
        false => unsafe { CStr::from_ptr(class_name) }.to_str(),
    };
    let Ok(class) = class else { return code(Error::Invalid) };
    let stated = Statement {
        class,
        size_bytes: (size_bytes > 0).then_some(size_bytes),
        target: (target_us > 0).then_some(Duration::from_micros(target_us)),
    };
    // SAFETY: as the caller promises.
    unsafe { call(client, report, |client| client.state(&stated)) }
}

/// Asks what is in force.
///
/// # Safety
/// `client` is null or of [`kagiri_qos_connect`], `report` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kagiri_qos_rate(client: *mut Client, report: *mut CReport) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { call(client, report, Client::rate) }
}

/// Takes back what was stated.
///
/// # Safety
/// `client` is null or of [`kagiri_qos_connect`], `report` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kagiri_qos_withdraw(client: *mut Client, report: *mut CReport) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { call(client, report, Client::withdraw) }
}

/// Ends a client.
///
/// # Safety
/// `client` is null or of [`kagiri_qos_connect`], and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kagiri_qos_close(client: *mut Client) {
    if !client.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and the caller gives it up.
        let client = unsafe { Box::from_raw(client) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(client)));
    }
}

/// What a code means, as a string that stays.
#[unsafe(no_mangle)]
pub extern "C" fn kagiri_qos_text(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"done",
        -1 => c"no policy is in force",
        -2 => c"the policy did not answer within the deadline",
        -3 => c"the policy closed the connection",
        -4 => c"the policy has no class of this name",
        -5 => c"the class does not permit it: it needs join = true in the policy",
        -6 => c"the class is no name, or a number is out of range",
        _ => c"the library failed",
    };
    text.as_ptr()
}

fn code(error: Error) -> c_int {
    match error {
        Error::NoPolicy => -1,
        Error::Late => -2,
        Error::Closed => -3,
        Error::UnknownClass => -4,
        Error::NotPermitted => -5,
        Error::Invalid => -6,
    }
}

/// # Safety
/// `client` is null or of [`kagiri_qos_connect`], `report` null or writable.
unsafe fn call(
    client: *mut Client,
    report: *mut CReport,
    ask: impl FnOnce(&mut Client) -> Result<Report, Error>,
) -> c_int {
    // SAFETY: the caller's pointer is null or of a live client that no other call uses.
    let Some(client) = (unsafe { client.as_mut() }) else { return code(Error::Invalid) };
    match catch_unwind(AssertUnwindSafe(|| ask(client).map(|found| CReport::from(&found)))) {
        Ok(Ok(found)) => {
            if !report.is_null() {
                // SAFETY: the caller's pointer is writable; the memory need not have been set.
                unsafe { report.write(found) };
            }
            0
        }
        Ok(Err(error)) => code(error),
        Err(_) => INTERNAL,
    }
}

impl From<&Report> for CReport {
    fn from(report: &Report) -> Self {
        let mut class_name = [0; CLASS_BYTES_MAX + 1];
        for (to, from) in class_name[..CLASS_BYTES_MAX].iter_mut().zip(report.class.bytes()) {
            *to = from as c_char;
        }
        Self {
            rate_bit_per_s: report.rate_bit_per_s.unwrap_or(UNLIMITED),
            need_bit_per_s: report.need_bit_per_s.unwrap_or(0),
            size_bytes: report.size_bytes.unwrap_or(0),
            target_us: report.target.map_or(0, |target| target.as_micros() as u64),
            messages: report.messages,
            in_time: report.in_time,
            sockets: report.sockets,
            paced: report.paced,
            class_name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_c_and_rust_are_the_same() {
        for error in Error::ALL {
            // SAFETY: the texts are constants.
            let text = unsafe { CStr::from_ptr(kagiri_qos_text(code(error))) };
            assert_eq!(text.to_str(), Ok(error.text()));
        }
    }

    #[test]
    fn null_pointers_are_refused() {
        // SAFETY: null is allowed.
        unsafe {
            assert_eq!(kagiri_qos_rate(std::ptr::null_mut(), std::ptr::null_mut()), code(Error::Invalid));
            kagiri_qos_close(std::ptr::null_mut());
        }
    }
}
