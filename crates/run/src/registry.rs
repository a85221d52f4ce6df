//! The workloads of this program. A further one is one entry in [`BUILT_IN`].

use base::outcome::Resource;
use base::part::PartKind;
use base::plan::{Plan, PlanError};
use serde_json::Value;
use workload::AnyWorkload;

/// The workloads of kagiri, in the order in which help lists them.
pub static BUILT_IN: Registry = Registry::new(&[
    &stream::Stream,
    &transfer::Transfer,
    &exchange::Exchange,
    &daq::Daq,
    &files::Files,
    &files::ageing::FileAgeing,
]);

pub struct Registry {
    workloads: &'static [&'static dyn AnyWorkload],
}

impl Registry {
    pub const fn new(workloads: &'static [&'static dyn AnyWorkload]) -> Self {
        Self { workloads }
    }

    pub fn workloads(&self) -> &'static [&'static dyn AnyWorkload] {
        self.workloads
    }

    /// The workload of that name.
    /// Errors: An unknown name; the message lists the workloads.
    pub fn workload(&self, name: &str) -> Result<&'static dyn AnyWorkload, PlanError> {
        self.workloads.iter().copied().find(|workload| workload.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.workloads.iter().map(|workload| workload.name()).collect();
            PlanError::of_key("workload", format!("there is no workload '{name}', only {}", names.join(", ")))
        })
    }

    /// Makes the workloads' resources known: stored runs that are read afterwards have their labels.
    pub fn register_resources(&self) {
        for workload in self.workloads {
            Resource::register(workload.presentation().resources);
        }
    }

    pub fn part_kinds(&self) -> Vec<PartKind> {
        let own = self.workloads.iter().flat_map(|workload| workload.part_kinds());
        own.chain(observe::PARTS).chain(qos::PARTS).chain(tune::PARTS).chain(lab::PARTS).copied().collect()
    }

    /// Read a plan for any of these workloads.
    /// Errors: See [`Plan::from_toml`].
    pub fn read_plan(&self, text: &str) -> Result<Plan, PlanError> {
        Plan::from_toml(text, |name, settings| self.resolve(name, settings))
    }

    /// Check settings of a workload and fill in defaults.
    /// Errors: An unknown workload, or see [`AnyWorkload::resolve`].
    pub fn resolve(&self, name: &str, settings: Value) -> Result<Value, PlanError> {
        self.workload(name)?.resolve(&settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_resource_has_the_name_and_unit_that_its_workload_registered() {
        BUILT_IN.register_resources();
        for (name, unit, suffix) in [
            ("cpu", "%", "percent"),
            ("disk", "bit/s", "bit_per_s"),
            ("network", "bit/s", "bit_per_s"),
            ("memory", "B", "bytes"),
            ("window", "B", "bytes"),
            ("send_buffer", "B", "bytes"),
            ("buffer", "B", "bytes"),
            ("file_calls", "", "share"),
            ("locks", "", "share"),
            ("mount_program", "", "share"),
            ("player", "%", "percent"),
            ("none", "", ""),
        ] {
            let resource: Resource = serde_json::from_value(name.into()).unwrap();
            assert_eq!((resource.word(), resource.unit(), resource.unit_suffix()), (name, unit, suffix));
            assert_eq!(serde_json::to_value(resource).unwrap(), name);
        }
    }
}
