//! A setting as data, and the check of a value for it.

use base::units::ByteSize;

/// The largest number of an `int` of the kernel.
pub const INT_MAX: i64 = i32::MAX as i64;

/// A setting that programs or administrators can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// As sysctl(8) writes it; a socket's option by its name in C.
    pub name: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    /// Empty for switches and names.
    pub unit: &'static str,
    pub values: Values,
    /// The kernel's own default, or how it computes one.
    pub default: &'static str,
    pub scope: Scope,
    /// What a change affects.
    pub affects: Affects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    Number {
        min: i64,
        max: i64,
    },
    /// Three numbers that do not fall: minimum, default, maximum.
    Three {
        min: i64,
        max: i64,
    },
    /// One of `net.ipv4.tcp_available_congestion_control`.
    CongestionControl,
    /// The name of a queueing discipline: tc(8).
    QueueingDiscipline,
}

/// Where a setting exists once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Can be changed outside of network namespaces only, and holds for all of them.
    Host,
    /// Every network namespace has its own.
    Namespace,
    /// An option that its program sets: socket(7), tcp(7).
    Socket,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Namespace => "namespace",
            Self::Socket => "socket",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affects {
    /// All traffic at once.
    All,
    /// Sockets that are made, and connections that begin, after the change.
    NewSockets,
    /// Interfaces that come up after the change.
    NewInterfaces,
}

impl Affects {
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all traffic at once",
            Self::NewSockets => "new sockets",
            Self::NewInterfaces => "new interfaces",
        }
    }
}

/// Why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: {problem}")]
pub struct ValueError {
    pub name: &'static str,
    pub value: String,
    pub problem: String,
}

impl Setting {
    /// The last part of its name, as in `tcp_wmem`.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The allowed values in words. `available`: congestion controls of this host.
    pub fn range(&self, available: &[String]) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        match self.values {
            Values::Number { min: 0, max: 1 } => "0 (off) or 1 (on)".to_owned(),
            Values::Number { min, max } => format!("{min} to {max}{unit}"),
            Values::Three { min, max } => format!("three rising numbers from {min} to {max}{unit}"),
            Values::CongestionControl if available.is_empty() => "a congestion control".to_owned(),
            Values::CongestionControl => format!("one of {}", available.join(", ")),
            Values::QueueingDiscipline => {
                "a queueing discipline, such as fq, fq_codel, pfifo_fast".to_owned()
            }
        }
    }

    /// The value as the kernel prints it, with single blanks. Several numbers may be separated by blanks or
    /// commas; a number of bytes may have a unit (`4MiB`). `available`: congestion controls of this host.
    /// Errors: not such a value, or out of its range.
    pub fn check(&self, text: &str, available: &[String]) -> Result<String, ValueError> {
        let refuse = |problem: String| ValueError {
            name: self.name,
            value: text.split_whitespace().collect::<Vec<_>>().join(" "),
            problem,
        };
        if self.scope == Scope::Socket {
            return Err(refuse(format!(
                "{} is an option of a socket, which only its program sets; {}",
                self.name, self.default
            )));
        }
        let words: Vec<&str> =
            text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty()).collect();
        let expected = || format!("expected {}", self.range(available));
        let number = |word: &str, (min, max): (i64, i64)| {
            self.number(word).filter(|number| (min..=max).contains(number)).ok_or_else(|| refuse(expected()))
        };
        match (self.values, words.as_slice()) {
            (Values::Number { min, max }, [word]) => Ok(number(word, (min, max))?.to_string()),
            (Values::Three { min, max }, [low, middle, high]) => {
                let numbers = [low, middle, high].map(|word| number(word, (min, max)));
                let [low, middle, high] = numbers;
                let numbers = [low?, middle?, high?];
                if !numbers.is_sorted() {
                    return Err(refuse("the numbers (minimum, default, maximum) must not fall".to_owned()));
                }
                Ok(numbers.map(|number| number.to_string()).join(" "))
            }
            (Values::CongestionControl, [word]) if available.iter().any(|known| known == word) => {
                Ok((*word).to_owned())
            }
            (Values::CongestionControl, [word]) => Err(refuse(format!(
                "{}; if the kernel has it as a module, load it first: modprobe tcp_{word}",
                expected()
            ))),
            (Values::QueueingDiscipline, [word]) if is_plain(word) => Ok((*word).to_owned()),
            _ => Err(refuse(expected())),
        }
    }

    /// A whole number; of bytes also with a unit.
    fn number(&self, word: &str) -> Option<i64> {
        let bytes = || word.parse::<ByteSize>().ok().and_then(|size| i64::try_from(size.bytes()).ok());
        word.parse().ok().or_else(|| (self.unit == "bytes").then(bytes).flatten())
    }
}

fn is_plain(word: &str) -> bool {
    word.len() <= 15
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use crate::catalogue::find;

    fn check(name: &str, value: &str) -> Result<String, String> {
        let available = ["reno".to_owned(), "bbr".to_owned()];
        find(name).unwrap().check(value, &available).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_normalised() {
        for value in
            ["4096 16384 4194304", "4096\t16384\t4194304\n", "4096,16384,4MiB", " 4096, 16384 4194304"]
        {
            assert_eq!(check("tcp_wmem", value).as_deref(), Ok("4096 16384 4194304"), "{value:?}");
        }
        assert_eq!(check("tcp_sack", "+01").as_deref(), Ok("1"));
        assert_eq!(check("tcp_congestion_control", "bbr").as_deref(), Ok("bbr"));
        assert_eq!(check("default_qdisc", "fq").as_deref(), Ok("fq"));
        assert_eq!(check("tcp_notsent_lowat", "4294967295").as_deref(), Ok("4294967295"));
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        for (name, value, part) in [
            ("tcp_sack", "2", "0 (off) or 1 (on)"),
            ("tcp_sack", "", "0 (off) or 1 (on)"),
            ("tcp_sack", "1 1", "0 (off) or 1 (on)"),
            ("tcp_sack", "1MiB", "0 (off) or 1 (on)"),
            ("tcp_wmem", "4096 16384", "three rising numbers"),
            ("tcp_wmem", "4096 16384 2147483648", "2147483647 bytes"),
            ("tcp_wmem", "4096 16384 -1", "three rising numbers"),
            ("tcp_wmem", "4096 16384 8192", "must not fall"),
            ("tcp_congestion_control", "cubic", "one of reno, bbr; if the kernel"),
            ("default_qdisc", "../x", "a queueing discipline"),
            ("SO_SNDBUF", "1", "only its program sets"),
        ] {
            let refused = check(name, value).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }
}
