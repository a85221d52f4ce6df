//! Names and files that mark a change to the system as ours; undoing touches nothing else.

use std::path::{Path, PathBuf};

/// Begins the name of every control group and network namespace that this program makes.
pub(crate) const PREFIX: &str = "kagiri-";
/// Where namespaces have their names, by the custom of `ip netns`.
pub(crate) const NETNS_FOLDER: &str = "/run/netns";
/// The file in a folder of ours that names its owner, see [`super::Undo::RemoveTree`].
pub(crate) const OWNER_FILE: &str = ".kagiri-owner";

/// Whether a control group's name says that this program made it.
pub(crate) fn is_our_group(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty())
}

/// Whether a namespace's name says that this program made it.
pub(crate) fn is_our_namespace(name: &str) -> bool {
    is_our_group(name) && !name.contains('/')
}

/// The file of the namespace called `name`, for setns(2).
pub(crate) fn namespace_path(name: &str) -> PathBuf {
    Path::new(NETNS_FOLDER).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prefixed_names_are_ours() {
        assert!(is_our_group("kagiri-12-cpu"));
        assert!(!is_our_group("kagiri-") && !is_our_group("system.slice") && !is_our_group(""));
    }
}
