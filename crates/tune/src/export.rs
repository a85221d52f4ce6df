//! Settings in forms that others read.

/// A file for /etc/sysctl.d: sysctl.d(5). `origin`: a comment, of one line.
pub fn sysctl_d(settings: &[(&str, &str)], origin: &str) -> String {
    let comment: String = origin.lines().map(|line| format!("# {line}\n")).collect();
    let lines = settings.iter().map(|(name, value)| format!("{name} = {value}\n"));
    comment + &lines.collect::<String>()
}

/// Commands for a shell: sysctl(8).
pub fn commands(settings: &[(&str, &str)]) -> String {
    settings.iter().map(|(name, value)| format!("sysctl -w {}\n", assignment(name, value))).collect()
}

/// `NAME=VALUE` as a word of a shell.
pub fn assignment(name: &str, value: &str) -> String {
    // Values of the catalogue have no quotes.
    if value.contains(' ') { format!("{name}='{value}'") } else { format!("{name}={value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [(&str, &str); 2] =
        [("net.ipv4.tcp_wmem", "4096 16384 4194304"), ("net.ipv4.tcp_congestion_control", "bbr")];

    #[test]
    fn exports_are_what_sysctl_reads() {
        assert_eq!(
            sysctl_d(&BOTH, "Set by kagiri"),
            "# Set by kagiri\nnet.ipv4.tcp_wmem = 4096 16384 4194304\nnet.ipv4.tcp_congestion_control = bbr\n"
        );
        assert_eq!(
            commands(&BOTH),
            "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'\n\
             sysctl -w net.ipv4.tcp_congestion_control=bbr\n"
        );
    }
}
