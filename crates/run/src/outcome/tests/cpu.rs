//! A limit by the CPU, and who else used it.

use super::*;

#[test]
fn limit_by_the_cpu_says_what_other_programs_used_of_it() {
    let users = |counters: &[(&str, f64)], resource, of_plan: &dyn Fn(&mut Plan)| {
        let mut only = trial(1, (5.0, Phase::Single, Pass));
        let throttled = counters.iter().find(|(name, _)| *name == "throttled_percent");
        let busy = Evidence::counted(resource, "busy");
        let busy = throttled.map_or(busy.clone(), |(name, value)| busy.with(*name, *value));
        let (certainty, evidence) = (Certainty::Confirmed, vec![busy]);
        only.account.limit = Some(Limit { resource, certainty, evidence });
        only.metrics.extend(counters.iter().map(|(name, value)| ((*name).to_owned(), Some(*value))));
        let mut plan = plan(1, json!({ "streams": 5 }), &[]);
        of_plan(&mut plan);
        let limit = concluded(&plan, vec![only], json!({})).limit;
        assert_eq!((limit.certainty, limit.evidence[0].statement.as_str()), (Certainty::Confirmed, "busy"));
        limit.cpu_users().map(|(who, percent)| format!("{who} {percent}")).collect::<Vec<_>>()
    };
    let here = |_: &mut Plan| {};
    let cpu = |counters: &[(&str, f64)]| users(counters, Resource::Cpu, &here);
    assert_eq!(cpu(&[("other_cpu_percent", 85.0), ("host_cpu_percent", 190.0)]), ["other programs used 85"]);
    assert_eq!(cpu(&[("steal_percent", 20.0)]), ["the hypervisor took 20"]);
    for little in
        [&[("other_cpu_percent", 20.0)][..], &[("other_cpu_percent", 85.0), ("host_cpu_percent", 3000.0)]]
    {
        assert_eq!(cpu(little), [""; 0], "{little:?}");
    }
    // A quota of its own.
    assert_eq!(cpu(&[("other_cpu_percent", 85.0), ("throttled_percent", 30.0)]), [""; 0]);
    assert_eq!(users(&[("other_cpu_percent", 85.0)], Resource::Disk, &here), [""; 0]);
    // Of several machines only one is sampled; hosts of a lab share one.
    let place = |plan: &mut Plan| {
        let wish = serde_json::from_value(json!("nas")).expect("a wish");
        plan.variants[0].place.insert("server".to_owned(), wish);
    };
    assert_eq!(users(&[("other_cpu_percent", 85.0)], Resource::Cpu, &place), [""; 0]);
    let in_lab = |plan: &mut Plan| {
        place(plan);
        plan.lab = Some("lab.toml".to_owned());
    };
    assert_eq!(users(&[("other_cpu_percent", 85.0)], Resource::Cpu, &in_lab), ["other programs used 85"]);
}
