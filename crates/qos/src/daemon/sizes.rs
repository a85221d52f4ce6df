//! Learns the size of a class's messages.

use std::collections::VecDeque;

use base::statistics::quantile;

#[derive(Debug, Clone, Default)]
pub struct RecentSizes {
    bytes: VecDeque<u64>,
}

impl RecentSizes {
    /// Messages that are remembered.
    const MESSAGES: usize = 64;

    pub fn add(&mut self, bytes: u64) {
        if self.bytes.len() == Self::MESSAGES {
            self.bytes.pop_front();
        }
        self.bytes.push_back(bytes);
    }

    /// The 90th percentile, in bytes; `None` before the first message.
    pub fn message_bytes(&self) -> Option<f64> {
        let sizes: Vec<f64> = self.bytes.iter().map(|&bytes| bytes as f64).collect();
        quantile(&sizes, 0.9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_the_90th_percentile_of_recent_messages() {
        let mut sizes = RecentSizes::default();
        assert_eq!(sizes.message_bytes(), None);
        (0..200).for_each(|_| sizes.add(1_000_000));
        (0..RecentSizes::MESSAGES as u64).for_each(|at| sizes.add(1000 + at));
        let learned = sizes.message_bytes().unwrap();
        assert!((1055.0..1063.0).contains(&learned), "{learned}");
    }
}
