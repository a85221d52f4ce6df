//! Tables of load tests: errors, latencies and throughputs beside the usage; what may be concluded of them.

use base::doubt::{Doubt, DoubtNote};
use base::outcome::{Certainty, Resource};
use base::verdict::Verdict;
use run::explain::csv::read;
use run::explain::{Explanation, LoadTable, ceiling};

const LOAD_TEST: &str =
    "users,cpu_pct,p99_ms,errors\n20,21,3,0\n40,41,3,0\n60,60,3,0\n70,71,4,0\n80,81,80,12\n";

fn table(text: &str) -> LoadTable {
    read(text.as_bytes(), Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn explained(text: &str, ceilings: &[&str]) -> Explanation {
    let ceilings = ceilings.iter().map(|text| ceiling::parse(text).expect("a ceiling of this test"));
    super::explained(text, &Vec::from_iter(ceilings))
}

fn statements(explanation: &Explanation) -> String {
    explanation.limit.evidence.iter().map(|e| e.statement.clone() + "\n").collect()
}

#[test]
fn load_with_errors_fails_and_latency_bend_is_named() {
    let explanation = explained(LOAD_TEST, &[]);
    assert_eq!((explanation.capacity.value, explanation.capacity.failures_above), (Some(70.0), 1));
    let said = statements(&explanation);
    assert!(said.contains("at 80 users p99_ms was 80 ms, 3 ms at lower loads"), "{said}");
    let text = explanation.considerations.join("\n");
    assert!(text.contains("At 80 users p99_ms was 80 ms, 3 ms at lower loads."), "{text}");
    // One core is an assumption: nothing is confirmed by it.
    assert_ne!(explanation.limit.certainty, Certainty::Confirmed, "{said}");
    assert!(explanation.ignored_columns.is_empty(), "{:?}", explanation.ignored_columns);
    // The line gives 99 users, but 80 failed.
    assert_eq!(explanation.predicted, None);
    let disagrees = |note: &DoubtNote| matches!(note.doubt, Doubt::PredictionDisagrees { .. });
    assert!(explanation.doubts.iter().any(disagrees), "{:?}", explanation.doubts);
}

#[test]
fn line_that_larger_loads_of_the_table_contradict_predicts_nothing() {
    let table =
        "threads,tps,cpu_pct\n1,100,5\n2,196,10\n4,370,20\n8,640,38\n16,920,60\n32,1010,75\n64,850,88\n";
    // The line through the first five loads reaches a core at 22 threads, but 64 use 88 % of it.
    let explanation = explained(table, &[]);
    assert_eq!(explanation.predicted, None);
    assert_eq!(explanation.saturation[&Resource::Cpu].saturates_at, None);
    let limit = &explanation.limit;
    assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
    let said = statements(&explanation);
    assert!(
        said.contains("at 64 threads CPU use was only 88 % of a core: the line does not hold so far"),
        "{said}"
    );
    assert_eq!(explanation.capacity.interval, [Some(16.0), Some(32.0)]);
    // Where the greatest load uses the core up, the line holds.
    let full = table.replace("75\n64,850,88", "97\n64,850,99");
    assert_eq!(explained(&full, &[]).limit.resource, Resource::Cpu);
}

#[test]
fn latency_bend_without_verdicts_bounds_the_prediction() {
    let without = LOAD_TEST.replace(",errors", "").replace(",0\n", "\n").replace(",12\n", "\n");
    let explanation = explained(&without, &[]);
    assert_eq!(explanation.predicted, None, "99 users lie beyond the bend at 80");
    assert_eq!(explanation.capacity.interval, [Some(70.0), Some(80.0)]);
    assert_eq!((explanation.capacity.value, explanation.capacity.passes), (Some(70.0), 0));
    let text = explanation.considerations.join("\n");
    assert!(text.contains("At 80 users p99_ms was 80 ms"), "{text}");
    assert!(
        text.contains("99 users (computed from 5 trials at 5 loads), but latency bends before"),
        "{text}"
    );
    // A latency that does not bend changes nothing.
    let even = without.replace(",80\n", ",5\n");
    assert_eq!(explained(&even, &[]).predicted, Some(99.0));
}

#[test]
fn latency_that_bends_before_an_assumed_ceiling_has_no_known_limit() {
    let without = LOAD_TEST.replace(",errors", "").replace(",0\n", "\n").replace(",12\n", "\n");
    for text in [LOAD_TEST, &without] {
        let limit = explained(text, &[]).limit;
        assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown), "{limit:?}");
        let said = &limit.evidence[0].statement;
        assert!(said.starts_with("at 80 users latency rose before any known ceiling was reached"), "{said}");
        assert!(said.contains("CPU use was 81 % of an assumed one"), "{said}");
        // A ceiling that is known is near at 81 %, and so is an assumed one that is used up.
        let given = explained(text, &["cpu=1core"]).limit;
        assert_eq!((given.resource, given.certainty), (Resource::Cpu, Certainty::Predicted), "{given:?}");
        let full = explained(&text.replace("80,81,", "80,97,"), &[]).limit;
        assert_eq!(full.resource, Resource::Cpu, "{full:?}");
    }
}

#[test]
fn failures_are_read_under_their_usual_names() {
    for header in [
        "errors",
        "Error",
        "error rate",
        "error_rate_%",
        "Errors/s",
        "failures",
        "Failed",
        "fails",
        "timeouts",
        "timed out",
        "err",
        "5xx",
        "http_5xx",
        "dropped",
        "lost",
        "packet loss %",
        "lost packets",
        "failed requests",
        "errors (%)",
        "Number of errors",
        "KO",
        "stalls",
        "rejected requests",
    ] {
        for (cell, verdict) in [("0", Verdict::Pass), ("12", Verdict::Fail), ("0.5", Verdict::Fail)] {
            let table = table(&format!("users,cpu,{header}\n1,2,{cell}\n"));
            assert_eq!(table.rows[0].verdict, Some(verdict), "{header} {cell}");
            assert!(table.ignored_columns.is_empty(), "{header}");
        }
    }
    let words = table("users,cpu,failed\n1,2,no\n2,4,yes\n");
    assert_eq!(
        words.rows.iter().map(|row| row.verdict).collect::<Vec<_>>(),
        [Some(Verdict::Pass), Some(Verdict::Fail)]
    );
    let two = table("users,cpu,errors,timeouts\n1,2,0,0\n2,3,0,1\n3,4,,\n");
    let verdicts: Vec<_> = two.rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Some(Verdict::Pass), Some(Verdict::Fail), None]);
    for header in ["error handler", "lost luggage claims", "broken streams"] {
        assert_eq!(table(&format!("users,cpu,{header}\n1,2,3\n")).rows[0].verdict, None, "{header}");
    }
}

#[test]
fn usual_names_of_the_load_are_read_and_listed() {
    for (header, unit) in [
        ("users", "users"),
        ("VUs", "virtual users"),
        ("vus", "virtual users"),
        ("Concurrent Users", "concurrent users"),
        ("concurrent_users", "concurrent users"),
        ("concurrentUsers", "concurrent users"),
        ("connections", "connections"),
        ("threads", "threads"),
        ("rps", "requests/s"),
        ("requests/s", "requests/s"),
        ("Requests per second", "requests/s"),
        ("QPS", "queries/s"),
        ("workers", "workers"),
        ("jobs", "jobs"),
        ("sessions", "sessions"),
        ("client count", "clients"),
        ("user", "users"),
    ] {
        assert_eq!(table(&format!("{header},cpu\n1,2\n")).load_unit, unit, "{header}");
    }
    let message = read(b"colour,cpu\n1,2\n", Default::default()).unwrap_err().to_string();
    // The usual ones; all are in the documentation.
    for name in
        ["load", "streams", "users", "clients", "connections", "threads", "sources", "flows", "requests/s"]
    {
        assert!(
            message.contains(&format!("{name}, ")) || message.contains(&format!("{name} or")),
            "{message}"
        );
        assert_eq!(table(&format!("{name},cpu\n1,2\n")).rows.len(), 1, "{name}");
    }
    // Beside a load, a rate is what came of it; errors are no unit of "n".
    let both = table("rps,users,cpu,n errors\n90,1,2,0\n");
    assert_eq!((both.load_unit.as_str(), both.rows[0].load), ("users", 1.0));
    assert_eq!((both.throughputs[0].header.as_str(), both.rows[0].verdict), ("rps", Some(Verdict::Pass)));
}

#[test]
fn assumed_ceiling_confirms_nothing() {
    let rows = "1,25,2,pass\n2,50,2,pass\n3,75,3,pass\n4,99,30,fail\n";
    let text = format!("streams,cpu %,cpu wait %,verdict\n{rows}");
    let assumed = explained(&text, &[]).limit;
    assert_eq!((assumed.resource, assumed.certainty), (Resource::Cpu, Certainty::Predicted), "{assumed:?}");
    let given = explained(&text, &["cpu=1core"]).limit;
    assert_eq!((given.resource, given.certainty), (Resource::Cpu, Certainty::Confirmed), "{given:?}");
    // The sign that decides stands in front of the usage.
    let low =
        text.replace("75,3", "11,3").replace("99,30", "15,64").replace("50,2", "8,2").replace("25,2", "4,2");
    let waiting = explained(&low, &[]);
    assert!(statements(&waiting).contains("waited for a CPU 64 % of the time"), "{waiting:?}");
    let first = &waiting.limit.evidence[0].statement;
    assert!(first.contains("64 %"), "{first}");
    // More than the whole time is that of several threads.
    let many = explained(&low.replace(",64,", ",3613,"), &[]);
    let first = &many.limit.evidence[0].statement;
    assert!(first.contains("36.1 of the server's threads waited for a CPU on average"), "{first}");
    assert!(!statements(&many).contains("3613 %"), "{many:?}");
}

#[test]
fn negative_or_unsure_slope_is_no_cost_and_predicts_nothing() {
    let falling = explained("streams,cpu %,memory MB\n1,30,9\n2,28,9\n3,27,9\n4,25,9\n", &["memory=100MB"]);
    assert_eq!((falling.predicted, falling.capacity.value), (None, None));
    assert!(!falling.considerations.join(" ").contains("costs -"), "{:?}", falling.considerations);
    assert!(falling.limit.evidence.iter().all(|e| !e.statement.contains("costs")), "{:?}", falling.limit);
    let noise = explained("streams,cpu %\n1,30\n2,10\n3,40\n4,9\n5,41\n6,20\n", &[]);
    assert_eq!(noise.predicted, None, "{:?}", noise.saturation);
}

#[test]
fn two_loads_have_no_slope() {
    let explanation = explained("streams,cpu %,disk Mbit/s\n1,14,25\n2,28,50\n", &["disk=110Mbit/s"]);
    assert_eq!((explanation.predicted, explanation.capacity.value), (None, None));
    assert!(explanation.saturation.is_empty(), "{:?}", explanation.saturation);
    let text = explanation.considerations.join("\n");
    assert!(text.contains("a slope takes three loads that passed, and there are 2"), "{text}");
    assert!(explanation.doubts.iter().any(|note| note.doubt == Doubt::FewLoads { loads: 2 }));
}

#[test]
fn lost_cpu_time_weighs_against_every_other_limit() {
    let rows = |steal: u32, wait: u32| {
        format!(
            "N,disk Mbit/s,disk busy %,disk await ms,steal %,cpu wait %,verdict\n1,30,30,1,0,1,pass\n\
             2,60,60,1,0,1,pass\n3,88,85,2,0,1,pass\n4,109,99,30,{steal},{wait},fail\n"
        )
    };
    let quiet = explained(&rows(2, 2), &["disk=110Mbit/s"]).limit;
    assert_eq!((quiet.resource, quiet.certainty), (Resource::Disk, Certainty::Confirmed), "{quiet:?}");
    assert_eq!(quiet.contested(), None);
    for (steal, wait, part) in
        [(51, 2, "the hypervisor took 51 % of a core"), (0, 64, "waited for a CPU for 64 %")]
    {
        let explanation = explained(&rows(steal, wait), &["disk=110Mbit/s"]);
        let limit = &explanation.limit;
        assert_eq!((limit.resource, limit.certainty), (Resource::Disk, Certainty::Predicted), "{limit:?}");
        assert!(limit.contested().unwrap().statement.contains(part), "{limit:?}");
        let text = explanation.considerations.join("\n");
        assert!(text.contains("The limit is probably the disk; CPU time that was lost"), "{text}");
    }
    // The CPU itself is not acquitted by its own waits.
    let cpu =
        "N,cpu %,throttled %,steal %,verdict\n1,25,0,0,pass\n2,50,0,0,pass\n3,75,0,0,pass\n4,75,30,20,fail\n";
    assert_eq!(explained(cpu, &["cpu=75%"]).limit.certainty, Certainty::Confirmed);
}

#[test]
fn more_than_a_link_carries_confirms_nothing() {
    let at = |used: u32| {
        let rows = format!("1,300,pass\n2,600,pass\n3,900,pass\n4,{used},fail\n");
        explained(&format!("flows,network Mbit/s,verdict\n{rows}"), &["network=1Gbit/s"])
    };
    assert_eq!(at(990).limit.certainty, Certainty::Confirmed);
    let burst = at(1050);
    assert_eq!((burst.limit.resource, burst.limit.certainty), (Resource::Network, Certainty::Predicted));
    assert!(statements(&burst).contains("too short beside a burst"), "{burst:?}");
}

#[test]
fn throughput_that_bends_gets_the_scalability_law_and_its_peak() {
    let rows = [1u32, 2, 4, 8, 12, 16, 24, 32].map(|n| {
        let n = f64::from(n);
        let x = 100.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.001 * n * (n - 1.0));
        format!("{n},{x:.1},{}\n", 2.0 * n)
    });
    let explanation = explained(&format!("clients,rps,cpu %\n{}", rows.concat()), &["cpu=100%"]);
    let law = explanation.scalability.as_ref().unwrap();
    assert!((law.peak_load.unwrap() - 30.8).abs() < 1.0, "{law:?}");
    let text = explanation.considerations.join("\n");
    assert!(
        text.contains("Universal Scalability Law") && text.contains("peaks at about 31 clients"),
        "{text}"
    );
    // The CPU would last for 50 clients, but nothing is gained beyond the peak.
    assert_eq!((explanation.predicted, explanation.capacity.value), (None, Some(31.0)));
    assert!(text.contains("50 clients") && text.contains("but throughput peaks before"), "{text}");
    let straight = [1, 2, 4, 8, 12, 16, 24, 32].map(|n| format!("{n},{},{}\n", 100 * n, 2 * n));
    let straight = explained(&format!("clients,rps,cpu %\n{}", straight.concat()), &[]);
    assert_eq!(straight.scalability, None);
}
