//! Trials that cannot be judged: disturbed by the players themselves or by other programs on the host.

use base::doubt::Doubt;
use base::outcome::{Ceiling, Certainty, Resource};
use run::explain::Explanation;

use super::explained;

/// Four streams pass, five are invalid; what the players and the others used then.
fn at_five(player_cpu: &str, late_ms: &str, other_cpu: &str, steal: &str) -> Explanation {
    let calm: String = (1..=4).map(|n| format!("{n},{},{n},0.5,10,0,pass\n", 10 * n)).collect();
    let header = "streams,cpu %,player cpu %,tick_late_max_ms,other cpu %,steal %,verdict\n";
    explained(&format!("{header}{calm}5,50,{player_cpu},{late_ms},{other_cpu},{steal},invalid\n"), &[])
}

#[test]
fn player_limit_is_confirmed_only_by_player_counters() {
    use Certainty::{Confirmed, Unknown};
    for (player_cpu, late_ms, other_cpu, steal, certainty) in [
        // Their core is full, or they are late, whatever other programs use.
        ("97", "1", "5", "0", Confirmed),
        ("97", "1", "150", "0", Confirmed),
        ("20", "400", "150", "0", Confirmed),
        // They have time, and another program took the host's.
        ("20", "1", "150", "0", Unknown),
        ("20", "1", "5", "60", Unknown),
        // Unknown is no excuse.
        ("", "", "150", "", Unknown),
        // No other program is visible.
        ("20", "1", "5", "0", Confirmed),
    ] {
        let explanation = at_five(player_cpu, late_ms, other_cpu, steal);
        let found = (explanation.limit.resource, explanation.limit.certainty);
        assert_eq!(found, (Resource::Player, certainty), "{player_cpu} {late_ms} {other_cpu} {steal}");
        assert_eq!(explanation.capacity.value, Some(4.0));
    }
}

#[test]
fn other_programs_are_named_with_their_cpu_use() {
    let explanation = at_five("20", "1", "150", "60");
    let text = explanation.considerations.join("\n");
    for part in [
        "other programs, or the measuring side, disturbed the trials",
        "At 5 streams other programs used 150 % of a core",
        "What would help: a quiet host",
    ] {
        assert!(text.contains(part), "'{part}' is missing:\n{text}");
    }
    let evidence: Vec<&str> = explanation.limit.evidence.iter().map(|one| one.statement.as_str()).collect();
    assert!(evidence.contains(&"at 5 streams the hypervisor took 60 % of a core"), "{evidence:?}");
    let own = "at 5 streams the busiest thread of the measuring side used 20 % of a core";
    assert!(evidence.contains(&own), "{evidence:?}");
}

#[test]
fn advice_depends_on_who_disturbed_the_trials_and_full_link_is_named() {
    let advice = |other_cpu: &str, player_cpu: &str| {
        let doubts = at_five(player_cpu, "1", other_cpu, "0").doubts;
        let bound = doubts.iter().find(|note| matches!(note.doubt, Doubt::CapacityIsLowerBound { .. }));
        bound.map(|note| note.advice.clone()).expect("it is a lower bound")
    };
    assert_eq!(advice("150", "20"), "measure again when the host is quiet");
    assert_eq!(advice("5", "97"), "measure from further hosts as well (--place)");
    let text = "streams,network Mbit/s,other cpu %,verdict\n1,26,5,pass\n2,52,5,pass\n3,78,5,pass\n\
    4,104,5,pass\n\
                5,122,190,invalid\n5,121.9,190,invalid\n";
    let ceiling = Ceiling { value: 122e6, source: "rate of eth0".into() };
    let explanation = explained(text, &[(Resource::Network, ceiling)]);
    let evidence: Vec<&str> = explanation.limit.evidence.iter().map(|one| one.statement.as_str()).collect();
    let full = "at 5 streams network use was 122 Mbit/s, 100 % of its ceiling (122 Mbit/s, rate of eth0)";
    assert_eq!(explanation.limit.certainty, Certainty::Unknown);
    assert!(evidence[1].eq(full), "{evidence:?}");
}

/// As a survey measured it: from 800 streams on the players had no core left, and a neighbour came by.
const SURVEY: &str = "streams,cpu %,network Gbit/s,player cpu %,other cpu %,verdict\n\
    50,1,1.2,2,6,pass\n100,2.1,2.5,4,12,pass\n200,4.8,4.9,8,10,pass\n400,13.6,10,22,27,pass\n\
    675,21.5,16.8,47,31,pass\n800,22.8,21.2,93,15,invalid\n800,22.8,19.9,80,20,pass\n\
    900,28.6,22.5,64,43,pass\n900,28,16.3,79,105,invalid\n900,28,21.7,94,11,invalid\n\
    950,14,10.9,79,109,invalid\n950,14,15.5,78,107,invalid\n1000,16,22.5,95,12,invalid\n\
    1000,16,21.5,94,12,invalid\n1200,20,16.5,94,11,invalid\n1200,20,19.2,95,10,invalid\n\
    1600,33,16.0,92,17,invalid\n1600,33,14.5,89.6,19,fail\n";

#[test]
fn failure_among_disturbed_trials_is_not_the_targets_limit() {
    let explanation = explained(SURVEY, &[]);
    let limit = &explanation.limit;
    assert_eq!((limit.resource, limit.certainty), (Resource::Player, Certainty::Confirmed), "{limit:?}");
    assert_eq!(explanation.capacity.value, Some(900.0));
    assert_eq!(explanation.capacity.interval[1], None, "it may be more");
    let said = limit
        .evidence
        .iter()
        .any(|e| e.statement == "the measuring side disturbed 5 of 8 trials above 900 streams");
    assert!(said, "{limit:?}");
    // A failure that the players did not share is the target's.
    let certain = SURVEY.replace("92,17,invalid", "80,17,fail").replace("94,12,invalid", "80,12,fail");
    let certain = certain.replace("95,12,invalid", "80,12,fail");
    let explanation = explained(&certain, &[]);
    assert_ne!(explanation.limit.resource, Resource::Player, "{:?}", explanation.limit);
    assert_eq!(explanation.capacity.interval[1], Some(999.0));
}

#[test]
fn ceiling_is_not_inferred_below_measured_usage() {
    // The network carried less at the failure than at a load that passed.
    let rows = "1,1,5,pass\n2,2,10,pass\n3,3,15,pass\n4,4,20,pass\n5,5,14,fail\n";
    let text = format!("streams,cpu %,network Gbit/s,verdict\n{rows}");
    let explanation = explained(&text, &[]);
    assert_eq!(explanation.saturation[&Resource::Network].ceiling, None);
    assert_eq!(explanation.limit.resource, Resource::None);
    // A line that would meet one core at 100 is refuted by the failure at 5: a sentence says so, and there is
    // no number alone.
    assert_eq!(explanation.predicted, None);
    let doubts: Vec<_> = explanation.doubts.iter().map(|note| &note.doubt).collect();
    assert!(doubts.contains(&&Doubt::PredictionDisagrees { predicted: 100.0, measured: 4.0 }), "{doubts:?}");
    assert!(!doubts.iter().any(|doubt| matches!(doubt, Doubt::FarPrediction { .. })), "{doubts:?}");
    // Where it did stop, that is the ceiling and the first reason; what an invalid trial used does not count.
    let stopped = explained(&text.replace("5,5,14,fail", "5,5,20.2,fail\n5,5,3,invalid\n5,5,4,invalid"), &[]);
    let ceiling = stopped.saturation[&Resource::Network].ceiling.as_ref().expect("it stopped growing");
    assert_eq!((stopped.limit.resource, ceiling.value), (Resource::Network, 20.2e9));
    let first = &stopped.limit.evidence[0].statement;
    assert!(first.ends_with("it stopped growing"), "{first}");
}
