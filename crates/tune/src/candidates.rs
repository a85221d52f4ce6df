//! Values to try.

use crate::catalogue::find;
use crate::kernel::Kernel;

/// A smaller buffer holds less than a few packets.
const BUFFER_MIN: u64 = 64 << 10;
const BUFFER_MAX: u64 = 1 << 30;
/// Of the product of bandwidth and delay.
const FACTORS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// Values of a setting of three numbers (`net.ipv4.tcp_wmem`) whose largest buffer is a multiple of what the
/// path holds, `bandwidth_delay_bytes`, in powers of two. The kernel also needs room for its own data about
/// each packet, about as much again: the factor 2 holds a full path. Without the current value.
pub fn buffer_candidates(name: &str, bandwidth_delay_bytes: Option<f64>, kernel: &Kernel) -> Vec<String> {
    let Ok(setting) = find(name) else { return Vec::new() };
    let current = kernel.read(setting);
    let Some((rest, largest)) = current.value().and_then(|value| value.rsplit_once(' ')) else {
        return Vec::new();
    };
    let (Some(bytes), Ok(largest)) = (bandwidth_delay_bytes, largest.parse::<u64>()) else {
        return Vec::new();
    };
    let round = |factor: f64| ((factor * bytes) as u64).clamp(BUFFER_MIN, BUFFER_MAX).next_power_of_two();
    let mut sizes: Vec<u64> = FACTORS.map(round).to_vec();
    sizes.dedup();
    sizes.iter().filter(|size| **size != largest).map(|size| format!("{rest} {size}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_multiples_of_what_the_path_holds() {
        let root = tempfile::tempdir().unwrap();
        let ipv4 = root.path().join("proc/sys/net/ipv4");
        std::fs::create_dir_all(&ipv4).unwrap();
        std::fs::write(ipv4.join("tcp_wmem"), "4096\t16384\t524288\n").unwrap();
        let kernel = Kernel::new(root.path());
        let of = |bytes| buffer_candidates("net.ipv4.tcp_wmem", bytes, &kernel);
        assert_eq!(of(Some(250_000.0)), ["4096 16384 131072", "4096 16384 262144", "4096 16384 1048576"]);
        assert_eq!(of(Some(1.0)), ["4096 16384 65536"]);
        assert!(of(None).is_empty());
        assert!(buffer_candidates("net.ipv4.tcp_rmem", Some(1e6), &kernel).is_empty());
    }
}
