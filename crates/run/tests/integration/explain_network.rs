//! What confirms that a link is the limit, and what does not.

use base::outcome::{Ceiling, Certainty, Resource};
use run::explain::Explanation;

use super::explained;

const HEADER: &str = "streams,cpu %,network Mbit/s,network drops,sender limited %,verdict\n";

/// The table of these rows, with the rate of the link where it is known.
fn of(rows: &str, link_bit_per_s: Option<f64>) -> Explanation {
    let ceiling = |value| (Resource::Network, Ceiling { value, source: "the rate of the link".into() });
    explained(&format!("{HEADER}{rows}"), &Vec::from_iter(link_bit_per_s.map(ceiling)))
}

fn statements(explanation: &Explanation) -> String {
    explanation.limit.evidence.iter().map(|one| one.statement.clone() + "\n").collect()
}

/// As measured behind a token bucket of 118 Mbit/s.
const FULL: &str = "1,1,25.7,14,14,pass\n2,1,52.7,44,33,pass\n3,1,77.0,143,46,pass\n4,1,106.9,1397,73,pass\n\
    5,1,112.6,2972,98,fail\n";

#[test]
fn drops_and_waiting_connections_confirm_a_full_link() {
    for link in [Some(118e6), None] {
        let explanation = of(FULL, link);
        let found = (explanation.limit.resource, explanation.limit.certainty);
        assert_eq!(
            found,
            (Resource::Network, Certainty::Confirmed),
            "{link:?}: {}",
            statements(&explanation)
        );
        assert_eq!(explanation.capacity.value, Some(4.0));
        let text = statements(&explanation);
        for part in [
            "at 5 streams the queue in front of the link dropped 2972 packets per second (93.5 at lower \
             loads)",
            "the network limited the server's connections 98 % of the time, not the players or the server",
        ] {
            assert!(text.contains(part), "'{part}' is missing:\n{text}");
        }
    }
}

/// Every window that grows ends in a drop, so a rate of drops grows with the streams on any link.
#[test]
fn drops_on_a_mostly_free_link_are_no_limit() {
    let rows =
        "1,18,26,3,2,pass\n2,36,52,5,3,pass\n3,54,78,9,5,pass\n4,72,104,12,7,pass\n5,90,125,40,9,fail\n";
    let explanation = of(rows, Some(1e9));
    assert_ne!(explanation.limit.resource, Resource::Network, "{}", statements(&explanation));
}

/// Waiting for the send buffer is what a slow reader or a slow server does.
#[test]
fn send_buffer_column_is_not_read_as_network_limit() {
    let text = "streams,cpu %,sndbuf limited %\n1,10,5\n2,20,10\n3,30,15\n";
    assert_eq!(explained(text, &[]).ignored_columns, ["sndbuf limited %"]);
}
