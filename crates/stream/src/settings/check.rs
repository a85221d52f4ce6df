//! Which settings fit together.

use base::plan::PlanError;

use super::{ServerKind, ServerSettings, StreamSettings};
use crate::http::url::Url;
use mpegts::Codec;
use workload::settings::Settings;

impl Settings for StreamSettings {
    fn check(&self) -> Result<(), PlanError> {
        if let Some(url) = &self.url {
            Url::parse(url).map_err(|error| PlanError::of_key("url", error))?;
        }
        if self.content.codec == Codec::Hevc {
            let problem = "HEVC can be played but not made; use mpeg2 or h264";
            return Err(PlanError::of_key("content.codec", problem));
        }
        let player = &self.player;
        if player.start > player.cap || player.resume > player.cap {
            let problem = "the cap must be at least as long as `player.start` and `player.resume`";
            return Err(PlanError::of_key("player.cap", problem));
        }
        self.check_server()
    }

    fn advice(unknown_key: &str) -> Option<&'static str> {
        /// Settings of earlier versions that labs have now.
        const OF_LAB: [&str; 3] = ["cpu_quota_percent", "disk", "link"];
        OF_LAB
            .contains(&unknown_key)
            .then_some("; hosts with disks, links and quotas are made by a lab: docs/lab.md")
    }
}

impl StreamSettings {
    fn check_server(&self) -> Result<(), PlanError> {
        if self.url.is_some() && self.server != ServerSettings::default() {
            let problem = "a server that is already running is not started by 'server'";
            return Err(PlanError::of_key("url", problem));
        }
        if self.server.kind != ServerKind::Nginx {
            return Ok(());
        }
        if self.server.congestion_control.is_some() {
            let problem =
                "only the embedded server can choose it; for nginx set net.ipv4.tcp_congestion_control";
            return Err(PlanError::of_key("server.congestion_control", problem));
        }
        if self.server.cost_ns_per_byte > 0.0 {
            let problem = "only the embedded server can burn CPU time per byte";
            return Err(PlanError::of_key("server.cost_ns_per_byte", problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use base::units::Span;

    use super::*;

    #[test]
    fn defaults_are_valid_and_complete() {
        let settings = StreamSettings::read(json!({})).unwrap();
        assert_eq!(settings, StreamSettings::default());
        assert_eq!(settings.load_plan().search_hold, Span::from_s(5));
        let named_twice = StreamSettings::read(json!({ "time": "20s" })).unwrap();
        assert_eq!(named_twice.hold, Span::from_s(20));
    }

    #[test]
    fn read_rejects_wrong_settings_and_names_the_key() {
        for (settings, part) in [
            (json!({"bitrat": "25Mbit/s"}), "bitrat: unknown key; did you mean 'bitrate'?"),
            (json!({"bitrate": "25"}), "the unit is missing"),
            (json!({"bitrate": "-25Mbit/s"}), "must not be negative"),
            (json!({"content": {"codec": "hevc"}}), "content.codec: HEVC can be played but not made"),
            (json!({"content": {"codec": "H.264"}}), "unknown variant `H.264`"),
            (json!({"max": 0}), "max: 0 is not within 1 to 100000"),
            (json!({"content": {"path": 5}}), "content.path: invalid type"),
            (json!({"server": {"cost": 3}}), "server.cost: unknown key; expected one of kind, threads"),
            (json!({"disk": {}}), "made by a lab: docs/lab.md"),
            (json!({"hold": "3s", "time": "4s"}), "time: it is the same setting as `hold`"),
            (json!({"hold": "0s"}), "hold: 0s is not within 1s"),
            (json!({"player": {"cap": "500ms"}}), "player.cap"),
            (
                json!({"url": "http://nas/x.ts", "server": {"threads": 2}}),
                "url: a server that is already running",
            ),
            (json!({"server": {"threads": 5000}}), "server.threads: 5000 is not within"),
            (json!({"ceiling": {"cpu_percent": -5.0}}), "ceiling.cpu_percent"),
            (json!({"ceiling": {"disk": "0bit/s"}}), "ceiling.disk"),
            (json!({"player": {"warm_up": "1h"}}), "player.warm_up"),
            (json!({"server": {"kind": "nginx", "cost_ns_per_byte": 1.0}}), "only the embedded server"),
        ] {
            let message = StreamSettings::read(settings.clone()).unwrap_err().to_string();
            assert!(message.contains(part), "{settings}: {message}");
        }
    }
}
