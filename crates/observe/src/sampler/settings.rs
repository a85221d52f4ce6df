//! What the sampler is told.

use base::part::{Endpoints, PartError, Watch};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const PEER_KEY: &str = "watch_peer";

/// The settings of the part: a [`Watch`], to which `watch_peer` may add another part's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerSettings {
    /// The part whose endpoint says under `watch` what is to be watched: `server`. One without it runs elsewhere.
    pub watch_peer: Option<String>,
    /// What to watch beyond that.
    #[serde(flatten)]
    pub watch: Watch,
}

impl SamplerSettings {
    /// Reads them.
    ///
    /// # Errors
    /// A key that there is not, or a value of a wrong kind; both are the plan's fault.
    pub fn from_value(settings: &Value) -> Result<Self, PartError> {
        let known = serde_json::to_value(Watch::default()).map_err(PartError::new)?;
        let is_known = |key: &str| key == PEER_KEY || known.get(key).is_some();
        if let Some(key) = settings.as_object().and_then(|map| map.keys().find(|key| !is_known(key))) {
            return Err(PartError::usage(format!("the sampler has no setting '{key}'; leave it out")));
        }
        serde_json::from_value(settings.clone())
            .map_err(|error| PartError::usage(format!("the sampler's settings cannot be read: {error}")))
    }

    /// What is to be watched, with what the peer says. Process ids of both are taken; of the rest, the settings'
    /// own word goes first.
    ///
    /// # Errors
    /// There is no such peer, or its endpoint's `watch` is not one.
    pub fn resolve(&self, peers: &Endpoints) -> Result<Watch, PartError> {
        let mut watch = self.watch.clone();
        let Some(peer) = &self.watch_peer else { return Ok(watch) };
        let endpoint = peers.get(peer).ok_or_else(|| {
            PartError::new(format!("the sampler is to watch the part '{peer}', but there is none"))
        })?;
        // A server on another host says nothing here: only this host is then watched.
        let Some(theirs) = endpoint.get("watch").filter(|value| !value.is_null()) else { return Ok(watch) };
        let theirs: Watch = serde_json::from_value(theirs.clone()).map_err(|error| {
            PartError::new(format!("what the part '{peer}' says is to be watched cannot be read: {error}"))
        })?;
        watch.pids.extend(theirs.pids);
        watch.own_pids.extend(theirs.own_pids);
        watch.cgroup_cpu = watch.cgroup_cpu.or(theirs.cgroup_cpu);
        watch.block_device = watch.block_device.or(theirs.block_device);
        if watch.network_device.is_none() {
            watch.network_device = theirs.network_device;
            watch.network_namespace_pid = theirs.network_namespace_pid;
        }
        for (resource, ceiling) in theirs.ceilings {
            watch.ceilings.entry(resource).or_insert(ceiling);
        }
        Ok(watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_watch_is_settings() {
        let watch = Watch { pids: vec![7], block_device: Some("8:0".into()), ..Watch::default() };
        let settings = SamplerSettings::from_value(&serde_json::to_value(&watch).unwrap()).unwrap();
        assert_eq!(settings.resolve(&Endpoints::new()).unwrap(), watch);
    }

    #[test]
    fn a_peer_adds_what_it_knows() {
        let settings = json!({"watch_peer": "server", "own_pids": [3], "block_device": "8:0"});
        let settings = SamplerSettings::from_value(&settings).unwrap();
        let theirs = json!({"pids": [5], "own_pids": [4], "block_device": "7:1", "network_device": "lo"});
        let peers = Endpoints::from([("server".to_owned(), json!({"watch": theirs}))]);
        let watch = settings.resolve(&peers).unwrap();
        assert_eq!((watch.pids, watch.own_pids), (vec![5], vec![3, 4]));
        assert_eq!(watch.block_device.as_deref(), Some("8:0"));
        assert_eq!(watch.network_device.as_deref(), Some("lo"));
    }

    #[test]
    fn a_remote_peer_leaves_the_host() {
        let settings = SamplerSettings::from_value(&json!({"watch_peer": "server"})).unwrap();
        for endpoint in [json!({"content_url": "http://far/"}), json!({"watch": null})] {
            let peers = Endpoints::from([("server".to_owned(), endpoint)]);
            assert_eq!(settings.resolve(&peers).unwrap(), Watch::default());
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = SamplerSettings::from_value(&json!({"pid": 4})).unwrap_err();
        assert!(error.usage && error.message.contains("'pid'"), "{error}");
        let error = SamplerSettings::from_value(&json!({"pids": "four"})).unwrap_err();
        assert!(error.usage, "{error}");
        let settings = SamplerSettings::from_value(&json!({"watch_peer": "server"})).unwrap();
        let error = settings.resolve(&Endpoints::new()).unwrap_err();
        assert!(error.message.contains("'server'"), "{error}");
        let peers = Endpoints::from([("server".to_owned(), json!({"watch": {"pids": "x"}}))]);
        assert!(settings.resolve(&peers).is_err());
    }
}
