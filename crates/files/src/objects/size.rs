//! Sizes of objects.

use std::collections::BTreeMap;

use base::units::ByteSize;

use crate::program::{SetValue, Source};

/// Larger objects need uploads in parts.
pub const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// As filebench's fileserver makes its files.
pub const DEFAULT: &str = "randvar(type=gamma,mean=128k,gamma=1500)";

/// Reads a size: a number with its unit, or a random variable as in WML.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<wml::Number, String> {
    // Only the units of the settings end in a B: `16kB`, `16KiB`.
    let text = match text.trim() {
        size if size.ends_with(['B', 'b']) => {
            size.parse::<ByteSize>().map_err(|error| error.to_string())?.bytes().to_string()
        }
        other => other.to_owned(),
    };
    // The language has the only reader of random variables.
    let program = "set $size=1\ndefine fileset name=o,path=/o,size=$size,entries=1\n\
        define process name=p { thread name=t { flowop statfile name=s,filesetname=o } }\nrun 1";
    let source = Source { name: "object_size".to_owned(), text: program.to_owned() };
    let set = BTreeMap::from([("size".to_owned(), SetValue::Text(text))]);
    let wrong =
        |why: &str| format!("{why}; write a size such as 128k, or a random variable such as {DEFAULT}");
    let ready = source.evaluate(set.iter(), None).map_err(|error| wrong(&error.problem))?;
    let size = ready.program.filesets.into_iter().next().map(|set| set.size);
    let size = size.ok_or_else(|| wrong("it is no size"))?;
    match size.constant() {
        Some(0) => Err(wrong("an object needs at least one byte")),
        Some(bytes) if bytes > OBJECT_BYTES_MAX => Err(wrong("an object has at most 1 GiB")),
        _ => Ok(size),
    }
}

/// The size of the next object.
pub(crate) fn draw(size: &wml::Number, rng: &mut fastrand::Rng) -> u64 {
    size.draw(rng).clamp(1, OBJECT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_a_number_or_a_random_variable() {
        assert_eq!(parse("128k").unwrap().constant(), Some(128 << 10));
        for (text, bytes) in [("16kB", 16_000), ("16KiB", 16 << 10), ("1 MB", 1_000_000), ("4096B", 4096)] {
            assert_eq!(parse(text).unwrap().constant(), Some(bytes), "{text}");
        }
        let random = parse(DEFAULT).unwrap();
        assert_eq!(random.constant(), None);
        let mut rng = fastrand::Rng::with_seed(1);
        let mean = (0..20_000).map(|_| draw(&random, &mut rng)).sum::<u64>() / 20_000;
        assert!((100_000..170_000).contains(&mean), "{mean}");
        for wrong in ["", "many", "0", "0B", "2g", "2GB", "16xB", "randvar(type=never,mean=1k)"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
