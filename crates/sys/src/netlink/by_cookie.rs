//! Maps and sets of sockets by the numbers that the kernel gives them: cookies and inodes.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// The standard hash resists keys that an attacker has chosen, which costs most of a look-up. The kernel
/// assigns these numbers one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct NumberHasher(u64);

/// 2^64 by the golden ratio: spreads consecutive numbers (Knuth, The Art of Computer Programming, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(SPREAD);
    }
}

/// By the cookie of the socket.
pub type ByCookie<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;
pub type Cookies = HashSet<u64, BuildHasherDefault<NumberHasher>>;
/// By the inode of the socket.
pub(crate) type ByInode<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_cookies_spread_over_a_table() {
        let hash = |cookie: u64| {
            let mut hasher = NumberHasher::default();
            hasher.write_u64(cookie);
            hasher.finish()
        };
        // Two processors give out batches of 4096.
        let cookies: Vec<u64> = (0..512).chain(40_960..41_472).collect();
        let places: HashSet<u64> = cookies.iter().map(|cookie| hash(*cookie) % 2048).collect();
        let tags: HashSet<u64> = cookies.iter().map(|cookie| hash(*cookie) >> 57).collect();
        assert!(places.len() > 600 && tags.len() == 128, "{} {}", places.len(), tags.len());
    }
}
