//! Floor 2: watching a host while it carries load.
