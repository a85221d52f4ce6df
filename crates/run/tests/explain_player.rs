//! Trials that nobody can judge: the players' own fault, or that of whoever else was on the host.

use std::collections::BTreeMap;

use base::outcome::{Certainty, Resource};
use kagiri_run::explain::{Explanation, csv, explain};

/// Four streams pass, five are invalid; what the players and the others used then.
fn at_five(player_cpu: &str, late_ms: &str, other_cpu: &str, steal: &str) -> Explanation {
    let calm: String = (1..=4).map(|n| format!("{n},{},{n},0.5,10,0,pass\n", 10 * n)).collect();
    let header = "streams,cpu %,player cpu %,tick_late_max_ms,other cpu %,steal %,verdict\n";
    let text = format!("{header}{calm}5,50,{player_cpu},{late_ms},{other_cpu},{steal},invalid\n");
    explain(&csv::read(text.as_bytes(), BTreeMap::new()).expect("a table of this test"))
}

#[test]
fn only_the_players_own_fault_confirms_that_they_are_the_limit() {
    use Certainty::{Confirmed, Unknown};
    for (player_cpu, late_ms, other_cpu, steal, certainty) in [
        // Their core is full, or they are late, whoever else is there.
        ("97", "1", "5", "0", Confirmed),
        ("97", "1", "150", "0", Confirmed),
        ("20", "400", "150", "0", Confirmed),
        // They have time, and somebody else took the host's.
        ("20", "1", "150", "0", Unknown),
        ("20", "1", "5", "60", Unknown),
        // Unknown is no excuse.
        ("", "", "150", "", Unknown),
        // Nobody else is seen.
        ("20", "1", "5", "0", Confirmed),
    ] {
        let explanation = at_five(player_cpu, late_ms, other_cpu, steal);
        let found = (explanation.limit.resource, explanation.limit.certainty);
        assert_eq!(found, (Resource::Player, certainty), "{player_cpu} {late_ms} {other_cpu} {steal}");
        assert_eq!(explanation.capacity.value, Some(4.0));
    }
}

#[test]
fn a_neighbour_is_named_with_what_it_took() {
    let explanation = at_five("20", "1", "150", "60");
    let text = explanation.considerations.join("\n");
    for part in [
        "a neighbour, spoiled the trials",
        "At 5 streams other programs used 150 % of a core",
        "What would help: a quiet host",
    ] {
        assert!(text.contains(part), "'{part}' is missing:\n{text}");
    }
    let evidence: Vec<&str> = explanation.limit.evidence.iter().map(|one| one.statement.as_str()).collect();
    assert!(evidence.contains(&"at 5 streams the hypervisor took 60 % of a core"), "{evidence:?}");
    assert!(evidence.contains(&"at 5 streams the busiest player thread used 20 % of a core"), "{evidence:?}");
}
