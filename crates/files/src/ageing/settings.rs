//! The settings of `ageing`, as they stand in a plan's `[ageing]` table and on the command line.

use ageing::readout::DiskModel;
use ageing::{Layout, Procedure, Severity};
use base::plan::PlanError;
use base::units::{BitRate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workload::settings::Settings;

/// The settings of `ageing`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgeingSettings {
    /// Where the file system is mounted that is aged. It should be new; in the end it is as empty as before.
    #[schemars(extend("x-unset" = "the disk of the lab's host",
        "x-flag" = {"positional": true, "value": "DIR"}))]
    pub dir: Option<String>,
    /// What wears the disk.
    #[schemars(extend("x-flag" = {"value": "PROCEDURE"}))]
    pub procedure: Procedure,
    /// How hard it is aged.
    #[schemars(extend("x-flag" = {"value": "SEVERITY"}))]
    pub severity: Severity,
    /// How recordings take their space.
    #[schemars(extend("x-flag" = {"value": "LAYOUT"}))]
    pub layout: Layout,
    /// Recordings that are made at the same time and read back, before and after.
    #[schemars(range(min = 1, max = 1000))]
    pub recordings: u32,
    /// Bit rate of a viewer's stream.
    #[schemars(extend("x-min" = "100kbit/s", "x-max" = "10Gbit/s"))]
    pub bitrate: BitRate,
    /// Time that the modelled disk takes to get from one piece to the next.
    #[schemars(extend("x-min" = "0s", "x-max" = "1s", "x-flag" = {"group": "Disk model"}))]
    pub seek: Span,
    /// Rate of the modelled disk within a piece.
    #[schemars(extend("x-min" = "1Mbit/s", "x-max" = "1Tbit/s",
        "x-flag" = {"name": "disk-rate", "group": "Disk model"}))]
    pub disk_rate: BitRate,
}

impl Default for AgeingSettings {
    fn default() -> Self {
        Self {
            dir: None,
            procedure: Procedure::default(),
            severity: Severity::default(),
            layout: Layout::default(),
            recordings: 12,
            bitrate: BitRate::from_bit_per_s(25_000_000),
            seek: Span::from_ms(12),
            disk_rate: BitRate::from_bit_per_s(110_000_000),
        }
    }
}

impl Settings for AgeingSettings {
    fn check(&self) -> Result<(), PlanError> {
        if self.procedure == Procedure::Flash {
            return self.refuse_keys_of_files();
        }
        if self.bitrate > self.disk_rate {
            return Err(PlanError::of_key("bitrate", "a disk of `disk_rate` carries no stream of this rate"));
        }
        Ok(())
    }
}

impl AgeingSettings {
    fn refuse_keys_of_files(&self) -> Result<(), PlanError> {
        let plain = Self::default();
        let of_files = [
            ("severity", self.severity != plain.severity),
            ("layout", self.layout != plain.layout),
            ("recordings", self.recordings != plain.recordings),
            ("bitrate", self.bitrate != plain.bitrate),
            ("seek", self.seek != plain.seek),
            ("disk_rate", self.disk_rate != plain.disk_rate),
        ];
        match of_files.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                Err(PlanError::of_key(key, "it is for `procedure` files, which makes recordings"))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn model(&self) -> DiskModel {
        DiskModel { seek_s: self.seek.ns() as f64 / 1e9, rate_bit_per_s: self.disk_rate.bit_per_s() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(settings: Value) -> Result<AgeingSettings, PlanError> {
        workload::settings::read(&settings)
    }

    #[test]
    fn settings_of_recordings_are_refused_by_name_for_flash() {
        for (key, value) in [
            ("severity", json!("mild")),
            ("layout", json!("pool")),
            ("recordings", json!(3)),
            ("bitrate", json!("5Mbit/s")),
            ("seek", json!("1ms")),
            ("disk_rate", json!("1Gbit/s")),
        ] {
            read(json!({ key: value })).unwrap();
            let error = read(json!({ "procedure": "flash", key: value })).unwrap_err();
            assert_eq!(error.key.as_deref(), Some(key), "{error:?}");
            assert!(error.problem.contains("`procedure` files"), "{error:?}");
        }
        assert_eq!(read(json!({ "procedure": "flash" })).unwrap().procedure, Procedure::Flash);
    }
}
