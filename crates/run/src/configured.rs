//! A variant with its settings read.

use base::plan::Variant;
use workload::ConfiguredWorkload;

/// A variant of a plan, with its workload that has read its settings.
pub struct ConfiguredVariant<'a> {
    pub variant: &'a Variant,
    pub workload: Box<dyn ConfiguredWorkload + 'a>,
}
