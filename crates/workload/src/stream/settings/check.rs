//! Which settings make sense, alone and together.

use base::plan::PlanError;

use super::{ServerKind, ServerSettings, StreamSettings};
use crate::reading::{ranged, span, within};
use crate::stream::content::Codec;
use crate::stream::viewer::url::Url;

/// More streams than any one host's players could ever open sockets for.
const STREAMS_MAX: u64 = 100_000;

impl StreamSettings {
    /// Every value within its range, and all of them fitting together.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let mbit = 1_000_000;
        within("bitrate", self.bitrate.bit_per_s(), mbit, 1000 * mbit, "1Mbit/s to 1Gbit/s")?;
        if let Some(url) = &self.url {
            Url::parse(url).map_err(|error| PlanError::of_key("url", error))?;
        }
        within("max", self.max, 1, STREAMS_MAX, "1 to 100000 streams")?;
        within("first", self.first, 1, STREAMS_MAX, "1 to 100000 streams")?;
        if let Some(streams) = self.streams {
            within("streams", streams, 1, STREAMS_MAX, "1 to 100000 streams")?;
        }
        span("hold", self.hold, 1, 86_400)?;
        if let Some(hold) = self.search_hold {
            span("search_hold", hold, 1, 86_400)?;
        }
        within("confirmations", u64::from(self.confirmations), 1, 100, "1 to 100")?;
        ranged("resolution_percent", self.resolution_percent, 0.1, 50.0)?;
        self.check_player()?;
        if self.content.codec == Codec::Hevc {
            let problem = "HEVC can be played but not made; use mpeg2 or h264";
            return Err(PlanError::of_key("content.codec", problem));
        }
        span("content.duration", self.content.duration, 5, 36_000)?;
        within("server.threads", u64::from(self.server.threads), 0, 1024, "0 to 1024")?;
        ranged("server.cost_ns_per_byte", self.server.cost_ns_per_byte, 0.0, 10_000.0)?;
        self.check_ceilings()?;
        self.check_made()
    }

    /// A ceiling of nothing would be left out without a word.
    fn check_ceilings(&self) -> Result<(), PlanError> {
        let said = &self.ceiling;
        if let Some(percent) = said.cpu_percent {
            ranged("ceiling.cpu_percent", percent, 1.0, 1_000_000.0)?;
        }
        for (key, rate) in [("ceiling.disk", said.disk), ("ceiling.network", said.network)] {
            if let Some(rate) = rate {
                within(key, rate.bit_per_s(), 100_000, u64::MAX, "100kbit/s or more")?;
            }
        }
        if let Some(size) = said.memory {
            within("ceiling.memory", size.bytes(), 1, u64::MAX, "1B or more")?;
        }
        Ok(())
    }

    fn check_player(&self) -> Result<(), PlanError> {
        let player = &self.player;
        for (key, value) in [("start", player.start), ("resume", player.resume), ("cap", player.cap)] {
            if value.s() < 0.1 || value.s() > 60.0 {
                return Err(PlanError::of_key(
                    &format!("player.{key}"),
                    format!("{value} is not within 100ms to 60s"),
                ));
            }
        }
        if player.start > player.cap || player.resume > player.cap {
            return Err(PlanError::of_key(
                "player.cap",
                "the cap must be at least as long as start and resume",
            ));
        }
        if let Some(warm_up) = player.warm_up {
            span("player.warm_up", warm_up, 0, 120)?;
        }
        within("player.receive_buffer", player.receive_buffer.bytes(), 16 << 10, 64 << 20, "16KiB to 64MiB")?;
        within("player.threads", u64::from(player.threads), 1, 1024, "1 to 1024")
    }

    /// What is made for a measurement must fit together.
    fn check_made(&self) -> Result<(), PlanError> {
        if self.url.is_some() && self.server != ServerSettings::default() {
            return Err(PlanError::of_key("url", "a server that is already there is not made by 'server'"));
        }
        if self.server.kind == ServerKind::Nginx && self.server.congestion_control.is_some() {
            let problem =
                "only the embedded server can choose; for nginx set net.ipv4.tcp_congestion_control";
            return Err(PlanError::of_key("server.congestion_control", problem));
        }
        if self.server.kind == ServerKind::Nginx && self.server.cost_ns_per_byte > 0.0 {
            return Err(PlanError::of_key(
                "server.cost_ns_per_byte",
                "only the embedded server can burn CPU per byte",
            ));
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
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (settings, part) in [
            (json!({"bitrat": "25Mbit/s"}), "unknown field `bitrat`"),
            (json!({"bitrate": "25"}), "the unit is missing"),
            (json!({"bitrate": "-25Mbit/s"}), "must not be negative"),
            (json!({"content": {"codec": "hevc"}}), "content.codec: HEVC can be played but not made"),
            (json!({"content": {"codec": "H.264"}}), "unknown variant `H.264`"),
            (json!({"max": 0}), "max: 0 is not within"),
            (json!({"hold": "0s"}), "hold: 0s is not within 1s"),
            (json!({"player": {"cap": "500ms"}}), "player.cap"),
            (
                json!({"url": "http://nas/x.ts", "server": {"threads": 2}}),
                "url: a server that is already there",
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
