//! Filters of events, which the kernel checks before it writes a record.

use std::os::fd::OwnedFd;

use super::{control, refused};
use crate::trace::TraceError;

const IOC_SET_FILTER: libc::Ioctl = 0x4008_2406;

/// The filter that lets the wanted calls through, checked in the kernel (Documentation/trace/events.rst) from
/// left to right: the fewer terms, the less a call costs.
pub(super) fn call_filter(calls: &[u16]) -> String {
    let mut sorted = calls.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|before, after| before + 1 == *after);
    let terms = runs.map(|run| match run {
        [only] => format!("id=={only}"),
        [first, .., last] => format!("(id>={first}&&id<={last})"),
        [] => String::new(),
    });
    terms.collect::<Vec<_>>().join("||")
}

pub(super) fn set_filter(event: &OwnedFd, filter: &str) -> Result<(), TraceError> {
    let Ok(text) = std::ffi::CString::new(filter) else { return Ok(()) };
    control(event, IOC_SET_FILTER, text.as_ptr() as libc::c_ulong)
        .map_err(|error| refused("set a filter", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_name_every_wanted_call() {
        assert_eq!(call_filter(&[44, 0, 46, 45]), "id==0||(id>=44&&id<=46)");
        assert_eq!(call_filter(&[]), "");
    }
}
