//! Random bytes for names, identities and keys, from the kernel: generators seeded by time would give agents
//! that start at the same instant the same values.

use std::array;

/// Random bytes from `getrandom(2)`.
///
/// # Panics
/// The kernel refuses, as under a filter of system calls.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random numbers: getrandom(2)");
    bytes
}

/// A random number that is not 0.
///
/// # Panics
/// As [`bytes`].
pub fn number() -> u64 {
    u64::from_ne_bytes(bytes()).max(1)
}

/// Random characters of `alphabet`.
///
/// # Panics
/// As [`bytes`], and if the alphabet's length does not divide 256 (the characters would not be equally
/// likely).
pub fn letters<const N: usize>(alphabet: &[u8]) -> [u8; N] {
    assert!(!alphabet.is_empty() && 256 % alphabet.len() == 0, "an alphabet of {}", alphabet.len());
    let bytes = bytes::<N>();
    array::from_fn(|index| alphabet[usize::from(bytes[index]) % alphabet.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_differ_between_threads() {
        let draw = || (number(), bytes::<16>(), letters::<16>(b"0123456789abcdef"));
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(draw)).collect();
        let mut drawn: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("it draws")).collect();
        assert!(drawn.iter().all(|(number, ..)| *number > 0));
        assert!(drawn.iter().all(|(.., letters)| letters.iter().all(u8::is_ascii_hexdigit)));
        drawn.sort_unstable();
        for two in drawn.windows(2) {
            assert!(two[0].0 != two[1].0 && two[0].1 != two[1].1 && two[0].2 != two[1].2, "{two:?}");
        }
    }

    #[test]
    fn all_letters_of_an_alphabet_are_drawn() {
        let drawn: [u8; 1024] = letters(b"abcdefgh");
        assert!(b"abcdefgh".iter().all(|letter| drawn.contains(letter)));
    }
}
