//! Embeds the console's pages, if `ui/dist` has been built (`make console`), and the ready plans.
//! It never runs npm: without the pages, everything else builds, and the server says how to build them.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    let pages = root.join("ui/dist");
    let mut assets = "static EMBEDDED: &[Embedded] = &[\n".to_owned();
    if pages.is_dir() {
        // Cargo takes a path that does not exist for changed: it is named only while it exists.
        println!("cargo::rerun-if-changed={}", pages.display());
        for (number, path) in files_below(&pages)?.iter().enumerate() {
            let gzip = out.join(format!("{number}.gz"));
            let content = fs::read(path)?;
            let mut encoder = GzEncoder::new(fs::File::create(&gzip)?, Compression::best());
            encoder.write_all(&content)?;
            encoder.finish()?;
            let name = path.strip_prefix(&pages).expect("a file below").display().to_string();
            let _ = writeln!(
                assets,
                "Embedded {{ name: {name:?}, plain: include_bytes!({path:?}), \
                 gzip: include_bytes!({gzip:?}), etag: \"\\\"{:016x}\\\"\" }},",
                fnv(&content)
            );
        }
    }
    fs::write(out.join("assets.rs"), assets + "];\n")?;

    let plans = root.join("plans");
    println!("cargo::rerun-if-changed={}", plans.display());
    let mut table = "static FILES: &[(&str, &str)] = &[\n".to_owned();
    for path in files_below(&plans)?.iter().filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let name = path.strip_prefix(&plans).expect("a file below").display().to_string();
        let _ = writeln!(table, "({name:?}, include_str!({path:?})),");
    }
    fs::write(out.join("plans.rs"), table + "];\n")
}

/// All files below a folder, in the order of their names.
fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

/// FNV-1a, 64 bits: tells versions of a page apart.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
