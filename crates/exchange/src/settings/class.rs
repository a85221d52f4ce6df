//! Classes of clients.

use base::units::{ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Arrivals, ExchangeSettings, Loop, MessageSize};

/// A class of clients as a plan has it; what is left out is that of all classes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassSettings {
    /// Its name in results.
    pub name: String,
    /// Number of its clients.
    pub clients: u64,
    /// Size of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<MessageSize>,
    /// Size of a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_size: Option<ByteSize>,
    /// Messages per client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Messages per second of each client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// When a client sends its next message.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub loop_kind: Option<Loop>,
    /// Moments of the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// Target of the response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Span>,
    /// Priority; 1 is the most urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Port of kagiri's server for this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Send buffer of its clients (SO_SNDBUF).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<ByteSize>,
}

/// A class of clients, complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    pub name: String,
    pub clients: u64,
    pub size: Option<MessageSize>,
    pub reply_bytes: u64,
    pub count: Option<u64>,
    pub rate_per_s: Option<f64>,
    pub loop_kind: Loop,
    pub arrivals: Arrivals,
    pub target: Option<Span>,
    /// 1 is the most urgent.
    pub priority: u32,
    /// Port of kagiri's server for this class; `None`: that of all.
    pub port: Option<u16>,
    /// `None`: as all clients have it.
    pub send_buffer_bytes: Option<u64>,
}

impl Class {
    /// Mean rate of the messages of a client, bit/s, whose bodies are files of this size if they are files;
    /// `None`: it has no limit, or is not known.
    pub(crate) fn message_bit_per_s(&self, file_bytes: Option<u64>) -> Option<f64> {
        let bytes = match (file_bytes, &self.size) {
            (Some(bytes), _) => bytes as f64,
            (None, Some(size)) => size.mean_bytes()?,
            (None, None) => 0.0,
        };
        Some(8.0 * bytes * self.rate_per_s?)
    }

    /// The same of the replies to a client.
    pub(crate) fn reply_bit_per_s(&self) -> Option<f64> {
        Some(8.0 * self.reply_bytes as f64 * self.rate_per_s?)
    }
}

/// Several rates as one that the owner of a host may permit: `u64::MAX` if one is unknown.
pub(crate) fn sum_bit_per_s(rates: impl Iterator<Item = Option<f64>>) -> u64 {
    rates.sum::<Option<f64>>().map_or(u64::MAX, |sum| sum as u64)
}

/// The name of the class of a plain command line.
const ONLY: &str = "messages";

impl ExchangeSettings {
    /// The classes of a trial: of a search, with `load` clients of the class that is searched.
    pub fn classes_at(&self, load: u64) -> Vec<Class> {
        let mut classes = self.classes();
        if let Some(search) = &self.search {
            let is_searched = |class: &&mut Class| match &search.class {
                Some(name) => class.name == *name,
                None => true,
            };
            if let Some(class) = classes.iter_mut().find(is_searched) {
                class.clients = load;
            }
        }
        classes
    }

    /// The classes as the settings have them.
    pub fn classes(&self) -> Vec<Class> {
        let only = [ClassSettings {
            name: ONLY.to_owned(),
            clients: self.clients,
            size: None,
            reply_size: None,
            count: None,
            rate_per_s: None,
            loop_kind: None,
            arrivals: None,
            target: None,
            priority: None,
            port: None,
            send_buffer: None,
        }];
        let given = if self.class.is_empty() { &only[..] } else { &self.class[..] };
        given.iter().map(|class| self.complete(class)).collect()
    }

    /// How many clients all classes have together.
    pub fn clients_all(&self) -> u64 {
        self.classes().iter().map(|class| class.clients).sum()
    }

    fn complete(&self, class: &ClassSettings) -> Class {
        let rate_per_s = class.rate_per_s.or(self.rate_per_s);
        let usual = if rate_per_s.is_some() { Loop::Open } else { Loop::Closed };
        Class {
            name: class.name.clone(),
            clients: class.clients,
            size: class.size.clone().or_else(|| self.message_size()),
            reply_bytes: class.reply_size.unwrap_or(self.reply_size).bytes(),
            count: class.count.or(self.count),
            rate_per_s,
            loop_kind: class.loop_kind.or(self.loop_kind).unwrap_or(usual),
            arrivals: class.arrivals.unwrap_or(self.arrivals),
            target: class.target.or(self.target),
            priority: class.priority.unwrap_or(1),
            port: class.port,
            send_buffer_bytes: class.send_buffer.map(|buffer| buffer.bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn class_takes_what_it_leaves_out_from_all_classes() {
        let settings = ExchangeSettings::read(json!({
            "size": "10kB", "target": "500ms", "search": {"max": 9, "class": "bulk"},
            "class": [
                {"name": "alarm", "clients": 3, "rate_per_s": 2.0, "priority": 1},
                {"name": "bulk", "clients": 14, "size": "250kB", "target": "2s", "priority": 2},
            ]
        }))
        .unwrap();
        let classes = settings.classes_at(5);
        let found: Vec<_> = classes
            .iter()
            .map(|class| (class.clients, class.size.clone().unwrap().to_string(), class.loop_kind))
            .collect();
        assert_eq!(found, [(3, "10kB".to_owned(), Loop::Open), (5, "250kB".to_owned(), Loop::Closed)]);
        let targets: Vec<_> = classes.iter().map(|class| class.target.unwrap().s()).collect();
        assert_eq!(targets, [0.5, 2.0]);
    }

    #[test]
    fn plain_settings_are_one_class() {
        let settings = ExchangeSettings::read(json!({"clients": 4})).unwrap();
        assert_eq!((settings.classes().len(), settings.clients_all()), (1, 4));
        assert_eq!(settings.load_plan().fixed, Some(4));
        let url = ExchangeSettings::read(json!({"host": "http://localhost/"})).unwrap();
        assert_eq!(url.classes()[0].size, None, "a URL is asked without a body");
    }

    #[test]
    fn rate_of_a_class_is_known_if_its_messages_have_a_rate_and_a_size() {
        let class = |settings| ExchangeSettings::read(settings).unwrap().classes().remove(0);
        let paced = class(json!({"rate_per_s": 10.0, "size": "uniform 1kB..3kB", "reply_size": "500B"}));
        let rates =
            [paced.message_bit_per_s(None), paced.message_bit_per_s(Some(1)), paced.reply_bit_per_s()];
        assert_eq!(rates, [Some(160e3), Some(80.0), Some(40e3)]);
        assert_eq!(sum_bit_per_s([Some(1.0), Some(2.0)].into_iter()), 3);
        let of_file = class(json!({"rate_per_s": 10.0, "size": "file x"}));
        assert_eq!((of_file.message_bit_per_s(None), of_file.message_bit_per_s(Some(1))), (None, Some(80.0)));
        let closed = class(json!({"size": "1kB"}));
        assert_eq!(sum_bit_per_s([Some(1.0), closed.message_bit_per_s(None)].into_iter()), u64::MAX);
    }
}
