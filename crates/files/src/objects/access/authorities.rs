//! Certificate authorities of a server, beside those of the system.

use reqwest::Certificate;

/// As the tools of Amazon read it: a file of certificates in PEM.
const VARIABLE: &str = "AWS_CA_BUNDLE";

/// The authorities of the environment's file; none if it names none.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(super) fn of_environment() -> Result<Vec<Certificate>, String> {
    match std::env::var(VARIABLE) {
        Ok(path) if !path.is_empty() => of_file(&path),
        _ => Ok(Vec::new()),
    }
}

fn of_file(path: &str) -> Result<Vec<Certificate>, String> {
    let wrong = |why: &str| format!("{VARIABLE}: {path}: {why}; give a file with certificates in PEM");
    let text = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|error| wrong(&error.to_string()))?;
    match found.is_empty() {
        true => Err(wrong("it has no certificate")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_certificates_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "no certificate\n").unwrap();
        for (path, why) in [(folder.path().join("none.pem"), "No such file"), (empty, "no certificate")] {
            let error = of_file(path.to_str().unwrap()).unwrap_err();
            assert!(error.starts_with("AWS_CA_BUNDLE: /") && error.contains(why), "{error}");
        }
    }
}
