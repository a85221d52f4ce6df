//! The size of each fragment: the same for source and builder, without asking.

use base::part::{HostContext, PartError};

use super::Size;

/// Draws the size of the fragment of a source in an event from a seed that all share.
#[derive(Debug, Clone)]
pub struct FragmentSizes {
    size: Size,
    seed: u64,
    file: Vec<u32>,
}

/// Sizes that a text names, one a line.
fn sizes(text: &str) -> Result<Vec<u32>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (usize, &str)| {
        let bytes = line.parse::<base::units::ByteSize>().ok().map(|size| size.bytes());
        let bytes = bytes.or_else(|| line.parse().ok()).and_then(|bytes| u32::try_from(bytes).ok());
        let bytes = bytes.filter(|&bytes| bytes <= super::check::SIZE_BYTES_MAX);
        bytes.ok_or_else(|| format!("line {number}: '{line}' is not a size of at most 64MiB"))
    };
    let sizes: Vec<u32> = lines.map(read).collect::<Result<_, _>>()?;
    if sizes.is_empty() { Err("it contains no size".to_owned()) } else { Ok(sizes) }
}

impl FragmentSizes {
    /// For these sizes; `file` is the text of the file that they name.
    pub fn new(size: &Size, seed: u64, file: &str) -> Result<Self, String> {
        let file = if matches!(size, Size::File(_)) { sizes(file)? } else { Vec::new() };
        Ok(Self { size: size.clone(), seed, file })
    }

    /// For these sizes; reads the file that they name.
    pub(crate) fn read(size: &Size, seed: u64, host: &HostContext) -> Result<Self, PartError> {
        let (file, text) = match size {
            Size::File(path) => (format!("{path}: "), super::text_of(path, "daq.size", host)?),
            _ => Default::default(),
        };
        Self::new(size, seed, &text).map_err(|error| PartError::usage(format!("daq.size: {file}{error}")))
    }

    pub fn bytes(&self, event: u64, source: u32) -> u32 {
        let random = || {
            let mixed = event.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ u64::from(source).wrapping_mul(0xd1b5_4a32_d192_ed03);
            fastrand::Rng::with_seed(self.seed ^ mixed)
        };
        let bytes = match &self.size {
            Size::Fixed(size) => size.bytes(),
            Size::Uniform(least, most) => random().u64(least.bytes()..=most.bytes().max(least.bytes())),
            Size::Lognormal(median, sigma) => {
                // Box and Muller, 1958.
                let mut random = random();
                let (a, b) = (1.0 - random.f64(), random.f64());
                let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
                (median.bytes() as f64 * (sigma * normal).exp()).round() as u64
            }
            Size::File(_) => {
                // Each source begins at another line, so that an event is a mixture.
                let at = event.wrapping_add(u64::from(source)) % self.file.len().max(1) as u64;
                u64::from(self.file.get(at as usize).copied().unwrap_or(0))
            }
        };
        bytes.min(u64::from(super::check::SIZE_BYTES_MAX)) as u32
    }

    pub fn mean_bytes(&self) -> f64 {
        match &self.size {
            Size::Fixed(size) => size.bytes() as f64,
            Size::Uniform(least, most) => (least.bytes() + most.bytes()) as f64 / 2.0,
            Size::Lognormal(median, sigma) => median.bytes() as f64 * (sigma * sigma / 2.0).exp(),
            Size::File(_) => {
                self.file.iter().map(|&bytes| f64::from(bytes)).sum::<f64>() / self.file.len().max(1) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_compute_equal_sizes_with_the_right_mean() {
        for text in ["1KiB", "uniform 1KiB..4KiB", "lognormal 1KiB 0.5", "file x"] {
            let size: Size = text.parse().unwrap();
            let [one, other] =
                [(); 2].map(|()| FragmentSizes::new(&size, 7, "1KiB\n100\n# no\n2kB").unwrap());
            let n = 20_000_u64;
            let all = (0..n).map(|k| (k / 100, (k % 100) as u32));
            let sum: u64 = all.clone().map(|(event, source)| u64::from(one.bytes(event, source))).sum();
            let mean = sum as f64 / n as f64;
            assert!((mean / one.mean_bytes() - 1.0).abs() < 0.03, "{text}: {mean} and {}", one.mean_bytes());
            assert!(
                all.clone().all(|(event, source)| one.bytes(event, source) == other.bytes(event, source))
            );
        }
        assert!(
            FragmentSizes::new(&Size::File("x".into()), 7, "1KiB\nmany")
                .is_err_and(|e| e.starts_with("line 2"))
        );
    }
}
