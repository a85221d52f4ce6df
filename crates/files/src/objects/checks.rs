//! The settings of object stores, and which settings are of the other kind of target.

use base::plan::PlanError;
use base::units::Span;

use super::access::address::Address;
use super::load::mix;
use super::mix::Mix;
use super::size;
use crate::settings::FilesSettings;

/// As of the fileserver.
const WORKERS: u64 = 50;
const WORKERS_MAX: u64 = 10_000;
const OBJECTS: u64 = 1000;
const REQUEST_WITHIN: Span = Span::from_s(30);

impl FilesSettings {
    /// The prefix to be measured; `None` if the target is a directory.
    pub(crate) fn object_store(&self) -> Option<Result<Address, PlanError>> {
        let target = self.dir.as_deref().filter(|target| Address::is_meant(target))?;
        Some(Address::parse(target).map_err(|why| PlanError::of_key("dir", why)))
    }

    /// The backend's view of the directory to be measured.
    pub(crate) fn backend(&self) -> Option<Result<Address, PlanError>> {
        let at = Address::parse(self.durable_at.as_deref()?);
        Some(at.map_err(|why| PlanError::of_key("durable_at", why)))
    }

    /// Without a search.
    pub(crate) fn workers(&self) -> u64 {
        self.threads.unwrap_or(WORKERS)
    }

    /// Number of objects for this number of workers.
    pub(crate) fn object_count(&self) -> u64 {
        let most = self.search.as_ref().map_or(self.workers(), |search| search.max);
        let needed = |mix: Mix| mix.objects_min().saturating_mul(most);
        let needed = mix(self.mix.as_deref()).map_or(0, needed);
        self.objects.unwrap_or(OBJECTS.max(needed))
    }

    pub(crate) fn object_sizes(&self) -> &str {
        self.object_size.as_deref().unwrap_or(size::DEFAULT)
    }

    pub(crate) fn request_deadline(&self) -> Span {
        self.request_within.unwrap_or(REQUEST_WITHIN)
    }

    pub(crate) fn check_objects(&self) -> Result<(), PlanError> {
        let plain = Self::default();
        let of_directories = [
            ("personality", self.personality != plain.personality),
            ("wml", self.wml.is_some()),
            ("set", !self.set.is_empty()),
            ("strict", self.strict),
            ("cold", self.cold),
            ("durable_at", self.durable_at.is_some()),
            ("durable_within", self.durable_within != plain.durable_within),
        ];
        if let Some((key, _)) = of_directories.into_iter().find(|(_, is_given)| *is_given) {
            let problem = "it is for directories; an object store takes `mix`, `objects` and `object_size`";
            return Err(PlanError::of_key(key, problem));
        }
        let mix = mix(self.mix.as_deref()).map_err(|why| PlanError::of_key("mix", why))?;
        size::parse(self.object_sizes()).map_err(|why| PlanError::of_key("object_size", why))?;
        let (key, workers) = match &self.search {
            Some(search) => ("search.max", search.max),
            None => ("threads", self.workers()),
        };
        if workers > WORKERS_MAX {
            return Err(PlanError::of_key(key, format!("an object store has at most {WORKERS_MAX} workers")));
        }
        let needed = mix.objects_min().saturating_mul(workers);
        match self.object_count() {
            count if count < needed => Err(PlanError::of_key(
                "objects",
                format!("{workers} workers with this `mix` need at least {needed} objects"),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn refuse_keys_of_objects(&self) -> Result<(), PlanError> {
        let of_objects = [
            ("mix", self.mix.is_some()),
            ("objects", self.objects.is_some()),
            ("object_size", self.object_size.is_some()),
            ("request_within", self.request_within.is_some()),
            ("allow_http", self.allow_http),
        ];
        match of_objects.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => Err(PlanError::of_key(key, "it is for object stores: s3://BUCKET/PREFIX")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(settings: Value) -> Result<FilesSettings, PlanError> {
        workload::settings::read(&settings)
    }

    #[test]
    fn settings_of_the_other_target_are_refused_by_name() {
        let s3 = "s3://bucket/a";
        for (settings, key, words) in [
            (json!({ "dir": s3, "personality": "varmail" }), "personality", "for directories"),
            (json!({ "dir": s3, "set": { "nfiles": 3 } }), "set", "for directories"),
            (json!({ "dir": s3, "cold": true }), "cold", "for directories"),
            (json!({ "dir": s3, "strict": true }), "strict", "for directories"),
            (json!({ "dir": s3, "durable_within": "1s" }), "durable_within", "for directories"),
            (json!({ "dir": "/mnt", "mix": "get=1" }), "mix", "for object stores"),
            (json!({ "dir": "/mnt", "objects": 3 }), "objects", "for object stores"),
            (json!({ "dir": "/mnt", "object_size": "1k" }), "object_size", "for object stores"),
            (json!({ "dir": "/mnt", "allow_http": true }), "allow_http", "for object stores"),
            (json!({ "dir": "s3://B/a" }), "dir", "no name of a bucket"),
            (json!({ "dir": s3, "mix": "delete=1" }), "mix", "run out"),
            (json!({ "dir": s3, "object_size": "no" }), "object_size", "write a size"),
            (json!({ "dir": s3, "objects": 5, "threads": 4 }), "objects", "at least 8 objects"),
            (json!({ "dir": s3, "threads": 20_000 }), "threads", "at most 10000"),
            (json!({ "dir": s3, "search": {} }), "search", "objective"),
        ] {
            let error = read(settings).unwrap_err();
            assert_eq!(error.key.as_deref(), Some(key), "{error:?}");
            assert!(error.problem.contains(words), "{error:?}");
        }
    }

    #[test]
    fn object_store_has_its_own_defaults() {
        let settings = read(json!({ "dir": "s3://bucket/a" })).unwrap();
        let plan = settings.load_plan();
        assert_eq!((plan.fixed, plan.hold, settings.object_count()), (Some(50), Span::from_s(60), 1000));
        let search =
            json!({ "dir": "s3://bucket/a", "search": { "max": 4000 }, "objective": { "p99_max": "1s" } });
        let settings = read(search).unwrap();
        assert_eq!((settings.load_plan().load_max, settings.object_count()), (4000, 8000));
    }
}
