//! The table of the 2006 report (3.5" disk, ext3), and what its authors read from it by hand.

use base::doubt::Doubt;
use base::outcome::{Certainty, Resource};
use run::explain::{Explanation, ceiling};

const REFERENCE: &str = "\
# 25 Mbit/s HD streams over HTTP
streams,cpu %,memory KB,disk Mbit/s,network Mbit/s
1,13.0,2542,26.9,26.3
2,27.2,5130,52.1,53.4
3,40.6,7796,77.5,80.1
4,55.6,10472,100.9,106.5
5,70.0,12936,126.6,133.0
";

fn explained(text: &str, ceilings: &[&str]) -> Explanation {
    let ceilings = ceilings.iter().map(|text| ceiling::parse(text).expect("a ceiling of this test"));
    super::explained(text, &Vec::from_iter(ceilings))
}

fn doubts(explanation: &Explanation) -> Vec<&Doubt> {
    explanation.doubts.iter().map(|note| &note.doubt).collect()
}

#[test]
fn reference_table_is_limited_by_cpu_at_fourteen_percent_per_stream() {
    let explanation = explained(REFERENCE, &[]);
    let cpu = &explanation.saturation[&Resource::Cpu];
    assert!((cpu.cost_per_load - 14.2).abs() < 0.1, "{cpu:?}");
    let at_six = cpu.usage_at_zero + 6.0 * cpu.cost_per_load;
    assert!((83.0..86.5).contains(&at_six), "{at_six}");
    assert_eq!(explanation.limit.resource, Resource::Cpu);
    assert_eq!(explanation.limit.certainty, Certainty::Predicted);
    assert_eq!(explanation.capacity.value, Some(7.0));
    assert_eq!(explanation.capacity.unit, "streams");
    assert!(cpu.ceiling.as_ref().unwrap().source.contains("assumed"), "{cpu:?}");
    let memory = explanation.saturation[&Resource::Memory].cost_per_load;
    assert!((memory / 1024.0 - 2620.0).abs() < 60.0, "{memory}");
    let network = explanation.saturation[&Resource::Network].cost_per_load;
    assert!((network / 1e6 - 26.7).abs() < 0.3, "{network}");
}

#[test]
fn disk_ceiling_of_110_mbit_per_s_limits_to_four_streams() {
    let explanation = explained(REFERENCE, &["disk=110Mbit/s"]);
    let disk = &explanation.saturation[&Resource::Disk];
    assert!((disk.saturates_at.unwrap() - 4.3).abs() < 0.1, "{disk:?}");
    assert_eq!(explanation.capacity.value, Some(4.0));
    assert_eq!(explanation.predicted, Some(4.0));
    assert_eq!(explanation.limit.resource, Resource::Disk);
}

#[test]
fn prediction_that_disagrees_with_verdicts_is_doubted() {
    let table = REFERENCE.replace("Mbit/s\n", "Mbit/s,verdict\n").replace("26.3\n", "26.3,pass\n");
    let table = table.replace("53.4\n", "53.4,pass\n").replace("80.1\n", "80.1,pass\n");
    let table = table.replace("106.5\n", "106.5,pass\n").replace("133.0\n", "133.0,pass\n");
    let explanation = explained(&(table.clone() + "6,,,,,fail\n"), &[]);
    assert_eq!(explanation.capacity.value, Some(5.0));
    assert_eq!(explanation.capacity.interval, [Some(5.0), Some(5.0)]);
    assert_eq!(explanation.predicted, Some(7.0));
    // The CPU's line gives 84 % at six, as the report read it; a mean of 84 % is near enough to the whole.
    assert_eq!(explanation.limit.resource, Resource::Cpu);
    assert_eq!(explanation.limit.certainty, Certainty::Predicted);
    assert!(doubts(&explanation).contains(&&Doubt::PredictionDisagrees { predicted: 7.0, measured: 5.0 }));

    // Where 71 % was measured at six there was some left, whatever the line says: the CPU is not accused.
    let left = explained(&(table.clone() + "6,71.0,,,,fail\n"), &[]);
    assert_eq!((left.limit.resource, left.limit.certainty), (Resource::None, Certainty::Unknown));
    let evidence = &left.limit.evidence[0];
    let expected = "6 streams failed, although CPU use was 71 % of its ceiling";
    assert!(evidence.inferred && evidence.statement == expected, "{evidence:?}");

    // Everything passed: nothing is accused, and the capacity is a lower bound.
    let passed = explained(&table, &[]);
    assert_eq!((passed.capacity.value, passed.limit.resource), (Some(5.0), Resource::None));
    assert_eq!(passed.capacity.interval, [Some(5.0), None]);
    assert!(matches!(doubts(&passed)[0], Doubt::CapacityIsLowerBound { .. }));

    // The verdicts do not apply to a slower disk than the measured one.
    let what_if = explained(&table, &["disk=110Mbit/s"]);
    assert_eq!((what_if.capacity.value, what_if.limit.resource), (Some(4.0), Resource::Disk));
    assert!(what_if.considerations[0].contains("do not apply"), "{:?}", what_if.considerations);
}

#[test]
fn prototype_with_cpu_quota_is_limited_by_cpu() {
    let table = "N,cpu %,throttled %,net Mbit/s,stalls\n1,14.0,0,25,0\n2,29.7,0,53,0\n3,39.1,0,69,0\n\
                 4,56.3,0,100,0\n5,75.0,6,127,0\n6,75.0,31,133,4\n";
    let explanation = explained(table, &["cpu=75%", "network=1Gbit/s"]);
    assert_eq!(explanation.capacity.value, Some(5.0));
    assert_eq!(explanation.limit.resource, Resource::Cpu);
    assert_eq!(explanation.limit.certainty, Certainty::Confirmed);
    let statements: Vec<_> = explanation.limit.evidence.iter().map(|e| e.statement.as_str()).collect();
    assert!(statements.iter().any(|s| s.contains("throttled the server 31 % of the time")), "{statements:?}");
    let forecast = explanation.forecast.unwrap();
    assert_eq!(forecast.loads_up_to, 3.0);
    assert!((forecast.predicted - 5.0).abs() <= 1.0, "{forecast:?}");
}

#[test]
fn prototype_with_slow_disk_is_limited_by_disk() {
    let table = "N;disk Mbit/s;cpu %;net Mbit/s;verdict\n1;31;0,03;27;pass\n2;61;0,06;50;pass\n\
                 3;87;0,08;76;pass\n4;95;0,11;101;pass\n5;108;0,17;122;fail\n";
    let explanation = explained(table, &["disk=110Mbit/s"]);
    assert_eq!(explanation.capacity.value, Some(4.0));
    assert_eq!(explanation.limit.resource, Resource::Disk);
    assert_eq!(explanation.limit.certainty, Certainty::Confirmed);
}

#[test]
fn explanation_text_has_the_same_numbers() {
    let explanation = explained(REFERENCE, &["disk=110Mbit/s"]);
    let text = explanation.considerations.join("\n");
    assert!((3..=6).contains(&explanation.considerations.len()), "{text}");
    for part in [
        "4 streams",
        "14.2 % of a core (95 %",
        "110 Mbit/s",
        "5 trials)",
        "(computed)",
        "The limit is the disk",
    ] {
        assert!(text.contains(part), "'{part}' is missing:\n{text}");
    }
    let json = serde_json::to_string(&explanation).unwrap();
    let again: Explanation = serde_json::from_str(&json).unwrap();
    assert_eq!((again.capacity, again.limit), (explanation.capacity, explanation.limit));
    for name in ["network", "memory"] {
        let unknown =
            explanation.doubts.iter().any(|note| note.message.contains(&format!("ceiling of {name}")));
        assert!(unknown, "{name}");
    }
}

#[test]
fn busy_disk_outweighs_cpu_below_its_ceiling() {
    let rows = "10,14,20,pass\n20,28,40,pass\n30,42,55,pass\n40,56,70,pass\n50,70,99,fail\n";
    let limit = explained(&format!("streams,cpu %,disk busy %,verdict\n{rows}"), &[]).limit;
    assert_eq!((limit.resource, limit.certainty), (Resource::Disk, Certainty::Unknown), "{limit:?}");
    assert!(limit.evidence[0].statement.starts_with("at 50 streams the disk was busy 99 %"), "{limit:?}");
    // Without the counter no program is named, and with a full CPU the CPU is named.
    let blind = explained(&format!("streams,cpu %,x,verdict\n{rows}"), &[]).limit;
    assert_eq!((blind.resource, blind.certainty), (Resource::None, Certainty::Unknown), "{blind:?}");
    let full = explained(&format!("streams,cpu %,x,verdict\n{rows}"), &["cpu=75%"]).limit;
    assert_eq!((full.resource, full.certainty), (Resource::Cpu, Certainty::Predicted), "{full:?}");
}

#[test]
fn prediction_far_above_measured_loads_is_doubted() {
    let is_doubted = |rows: &str| {
        let explanation = explained(&format!("streams,cpu %,verdict\n{rows}"), &["cpu=200%"]);
        doubts(&explanation).iter().any(|doubt| matches!(doubt, Doubt::FarPrediction { .. }))
    };
    assert!(is_doubted("1,0.06,pass\n2,0.09,pass\n6,0.14,pass\n12,0.29,pass\n"));
    assert!(!is_doubted("1,14,pass\n2,28,pass\n3,42,pass\n4,56,pass\n"));
}
