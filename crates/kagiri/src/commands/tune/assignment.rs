//! `NAME=VALUE` of the command line.

use tune::catalogue::find;
use tune::kernel::{Kernel, Reading, absence};
use tune::setting::Setting;

use crate::exit::Failure;

/// The end of the error about an unknown setting.
pub const LISTED_BY: &str = "; 'kagiri tune list --full' lists all";

/// A setting of this host, with a value that it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub setting: &'static Setting,
    /// As the kernel prints it, with single blanks.
    pub value: String,
}

/// Errors (of usage): an unknown name, a value out of range, a setting that is not here, one named twice.
pub fn read_all(texts: &[String], kernel: &Kernel) -> Result<Vec<Assignment>, Failure> {
    let mut all: Vec<Assignment> = Vec::new();
    for text in texts {
        let assignment = read(text, kernel)?;
        if all.iter().any(|other| other.setting == assignment.setting) {
            return Err(Failure::usage(format!("{} is set twice", assignment.setting.name)));
        }
        all.push(assignment);
    }
    Ok(all)
}

fn read(text: &str, kernel: &Kernel) -> Result<Assignment, Failure> {
    let (setting, value) = split(text)?;
    match kernel.read(setting) {
        Reading::Value(_) if kernel.is_read_only(setting) => Err(Failure::usage(format!(
            "{}: read-only in this network namespace; it exists once for the host: set it outside",
            setting.name
        ))),
        Reading::Value(_) => Ok(Assignment { setting, value }),
        Reading::NotHere => Err(Failure::usage(format!("{}: {}", setting.name, absence(setting)))),
        Reading::Failed(why) => Err(Failure::runtime(why)),
    }
}

/// The setting and its checked value, which this host need not have.
/// Errors (of usage): an unknown name, a value out of range.
pub fn split(text: &str) -> Result<(&'static Setting, String), Failure> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Failure::usage(format!(
            "{text:?}: expected NAME=VALUE, such as tcp_slow_start_after_idle=0"
        )));
    };
    let setting = find(name).map_err(|unknown| Failure::usage(format!("{unknown}{LISTED_BY}")))?;
    let value = setting.check(value, &Kernel::live().congestion_controls()).map_err(Failure::usage)?;
    Ok((setting, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Code;

    fn refused(texts: &[&str]) -> String {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let failure = read_all(&texts, &Kernel::live()).unwrap_err();
        assert_eq!(failure.code(), Code::Usage, "{failure}");
        failure.to_string()
    }

    #[test]
    fn wrong_assignments_are_refused_with_what_was_expected() {
        assert!(refused(&["tcp_sack"]).contains("NAME=VALUE"));
        assert!(refused(&["tcp_wmen=1"]).contains("did you mean 'net.ipv4.tcp_wmem'?"));
        assert!(refused(&["tcp_sack=7"]).contains("0 (off) or 1 (on)"));
        assert!(refused(&["tcp_sack=1", "net.ipv4.tcp_sack=0"]).contains("set twice"));
        assert!(refused(&["SO_SNDBUF=4096"]).contains("only its program sets"));
    }
}
