use super::wire::{ClassReport, Grant, Report};
use super::*;

const MS: u64 = 1_000_000;
const GIVEN: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = '20Mbit/s'\ncoordinator = 'tls/a:1'\n\
    [[class]]\nname = 'alarm'\nmatch = { process = 'a' }\npriority = 1\ntarget = '100ms'\nsize = '10kB'\n\
    [[class]]\nname = 'bulk'\nmatch = { process = 'b' }\npriority = 5\n";

fn policy() -> Policy {
    Policy::parse(GIVEN).unwrap()
}

fn id(name: &str) -> HostId {
    HostId { name: name.into(), id: 1 }
}

/// Of a host whose bulk takes all that it gets.
fn report(sequence: u32) -> Report {
    let greedy = ClassReport { delivered_bit_per_s: 5e6, active: 4, backlogged: 4, ..ClassReport::default() };
    Report {
        sequence,
        bulk_bit_per_s: 5e6,
        target_us: 100_000,
        message_need_bit_per_s: 1e6,
        classes: vec![ClassReport::default(), greedy],
        ..Report::default()
    }
}

/// Hosts that report every 50 ms.
struct Scene {
    coordinator: Coordinator,
    now_ms: u64,
    sequence: u32,
}

impl Scene {
    fn new() -> Self {
        Self { coordinator: Coordinator::new(&policy()), now_ms: 1000, sequence: 0 }
    }

    fn step(&mut self, reports: &[(&str, Report)]) -> Vec<(HostId, Grant)> {
        self.now_ms += 50;
        self.sequence += 1;
        for (name, report) in reports {
            let report = Report { sequence: self.sequence, ..report.clone() };
            assert!(self.coordinator.report(self.now_ms * MS, &id(name), report));
        }
        self.coordinator.tick(self.now_ms * MS)
    }

    /// Until all hosts have gathered.
    fn settled(hosts: &[&str]) -> Self {
        let mut scene = Self::new();
        let reports: Vec<(&str, Report)> = hosts.iter().map(|name| (*name, report(0))).collect();
        (0..20).for_each(|_| assert!(scene.step(&reports).is_empty(), "they gather"));
        assert_eq!(scene.step(&reports).len(), hosts.len());
        scene
    }
}

fn bulk(grants: &[(HostId, Grant)]) -> Vec<f32> {
    grants.iter().map(|(_, grant)| (grant.bulk_bit_per_s / 1e5).round() / 10.0).collect()
}

/// 97 % of the payload of 20 Mbit/s, less the largest message's need of 1 Mbit/s.
const LEFT: f32 = 17.6;

#[test]
fn given_capacity_less_the_largest_need_is_shared_evenly() {
    let mut scene = Scene::settled(&["a", "b"]);
    let grants = scene.step(&[("a", report(0)), ("b", report(0))]);
    assert_eq!(bulk(&grants), [LEFT / 2.0; 2]);
    let (_, first) = &grants[0];
    assert_eq!((first.hosts, first.report, first.lease_ms), (2, scene.sequence, 500));
    assert_eq!(first.classes[0], 0.0, "urgent classes are not limited");
    // What urgent sockets of one host send is taken from the bulk of both.
    let mut busy = report(0);
    busy.classes[0] = ClassReport { delivered_bit_per_s: 9e6, active: 1, ..ClassReport::default() };
    let grants = (0..4).map(|_| scene.step(&[("a", busy.clone()), ("b", report(0))])).last().unwrap();
    assert_eq!(bulk(&grants), [4.8, 4.8]);
}

/// Messages of 250 kB within 0.6 s need 3.9 Mbit/s each, those of 150 kB within 1 s 1.4 Mbit/s.
const RANKED: &str = "[bottleneck]\ninterface = 'eth0'\ncapacity = '20Mbit/s'\ncoordinator = 'tls/a:1'\n\
    [[class]]\nname = 'alarm'\nmatch = { process = 'a' }\npriority = 1\ntarget = '600ms'\nsize = '250kB'\n\
    clients = 3\n[[class]]\nname = 'robots'\nmatch = { process = 'b' }\npriority = 2\ntarget = '1s'\n\
    size = '150kB'\nclients = 8\n";

#[test]
fn less_urgent_class_of_one_host_leaves_what_a_more_urgent_one_of_another_needs() {
    let policy = Policy::parse(RANKED).unwrap();
    let mut scene = Scene { coordinator: Coordinator::new(&policy), ..Scene::new() };
    let needs = |active: u16, need: f32| ClassReport {
        active,
        active_need_bit_per_s: need,
        ..ClassReport::default()
    };
    let of = |alarms: u16, robots: u16| Report {
        classes: vec![needs(alarms, 3.92e6 * f32::from(alarms)), needs(robots, 1.41e6 * f32::from(robots))],
        ..report(0)
    };
    let mut robots = |a: Report, b: Report| {
        let grants = (0..25).map(|_| scene.step(&[("a", a.clone()), ("b", b.clone())])).last().unwrap();
        assert!(grants.iter().all(|(_, grant)| grant.classes[0] == 0.0), "the most urgent is not held");
        grants.iter().map(|(_, grant)| (grant.classes[1] / 1e5).round() / 10.0).collect::<Vec<_>>()
    };
    // Of 18.6 Mbit/s, the idle alarms keep one message; three of them leave 6.8 Mbit/s.
    assert_eq!(robots(of(0, 0), of(0, 8))[1], 14.6);
    assert_eq!(robots(of(3, 0), of(0, 8))[1], 6.8);
    assert_eq!(robots(of(3, 2), of(0, 6)), [1.7, 5.1], "by what the messages of each host need");
}

#[test]
fn share_of_a_silent_host_is_given_to_others_after_its_lease() {
    let mut scene = Scene::settled(&["a", "b"]);
    let rates: Vec<Vec<f32>> = (0..12).map(|_| bulk(&scene.step(&[("a", report(0))]))).collect();
    // The last report of b came 50 ms before the first of these steps.
    assert!(rates[..10].iter().all(|rates| *rates == [LEFT / 2.0]), "{rates:?}");
    assert!(rates[10..].iter().all(|rates| *rates == [LEFT]), "{rates:?}");
    let back = scene.step(&[("a", report(0)), ("b", report(0))]);
    assert_eq!(bulk(&back), [LEFT / 2.0; 2]);
}

#[test]
fn late_and_stale_reports_are_no_measurement() {
    let mut scene = Scene::settled(&["a", "b"]);
    let grant = scene.step(&[("a", report(0)), ("b", report(0))])[0].1.sequence;
    // Sent 50 ms after the grant came, which took no time: 100 ms later, the way took 50 ms.
    scene.step(&[("b", report(0))]);
    let answer = Report { grant, since_grant_us: 50_000, ..report(0) };
    let grants = scene.step(&[("a", answer.clone()), ("b", report(0))]);
    assert_eq!(grants.len(), 2);
    let seen = scene.coordinator.seen();
    assert_eq!(seen.hosts[0].round_trip, Some(Duration::from_millis(50)));
    (0..6).for_each(|_| drop(scene.step(&[("b", report(0))])));
    let grants = scene.step(&[("a", answer), ("b", report(0))]);
    assert_eq!(grants.iter().map(|(id, _)| id.name.as_str()).collect::<Vec<_>>(), ["b"], "it took 400 ms");
    assert!(scene.coordinator.seen().hosts[0].is_stale);
    // A host that stalled has seen nothing: what it sent before counts.
    let mut stalled = Report { is_late: true, ..report(0) };
    stalled.classes[1].delivered_bit_per_s = 9e9;
    scene.step(&[("a", stalled), ("b", report(0))]);
    assert!(scene.coordinator.seen().hosts[0].delivered_bit_per_s < 6e6);
}

#[test]
fn report_of_another_number_of_classes_is_refused() {
    let mut coordinator = Coordinator::new(&policy());
    let mut odd = report(1);
    odd.classes.pop();
    assert!(!coordinator.report(MS, &id("a"), odd));
    for host in 0..HOSTS_MAX as u64 {
        assert!(coordinator.report(MS, &HostId { name: "a".into(), id: host }, report(1)));
    }
    assert!(!coordinator.report(MS, &id("another"), report(1)));
    assert!(coordinator.report(MS, &HostId { name: "a".into(), id: 3 }, report(2)));
}

#[test]
fn law_begins_with_what_hosts_send_on_their_own() {
    let estimate = Policy::parse(&GIVEN.replace("20Mbit/s", "estimate")).unwrap();
    let mut scene = Scene { coordinator: Coordinator::new(&estimate), ..Scene::new() };
    let mut grants = Vec::new();
    for _ in 0..21 {
        let own = Report { bulk_bit_per_s: 8e6, ..report(0) };
        grants = scene.step(&[("a", own), ("b", Report { bulk_bit_per_s: 4e6, ..report(0) })]);
    }
    assert_eq!(bulk(&grants), [6.0, 6.0]);
    assert_eq!(grants[0].1.capacity_bit_per_s, None, "no queue has shown it");
}

#[test]
fn digest_is_of_capacity_and_classes() {
    let of = |text: String| digest(&Policy::parse(&text).unwrap());
    let own = of(GIVEN.to_owned());
    assert_eq!(of(GIVEN.replace("eth0", "wlan0").replace("tls/a:1", "tls/b:2")), own);
    assert_ne!(of(GIVEN.replace("20Mbit/s", "21Mbit/s")), own);
    assert_ne!(of(GIVEN.replace("100ms", "101ms")), own);
}

proptest::proptest! {
    #[test]
    fn no_reports_make_the_coordinator_panic_or_grant_nothing(
        steps in proptest::collection::vec(
            (0u64..400, proptest::collection::vec(proptest::num::u32::ANY, 16)), 1..60),
        is_given in proptest::bool::ANY,
    ) {
        let text = if is_given { GIVEN.to_owned() } else { GIVEN.replace("20Mbit/s", "estimate") };
        let mut coordinator = Coordinator::new(&Policy::parse(&text).unwrap());
        let mut now = 0;
        for (after, n) in steps {
            now += after * MS;
            let rate = |n: u32| wire::rate(f64::from(n).powi(1 + (n % 3) as i32));
            let class = |n: &[u32]| ClassReport {
                delivered_bit_per_s: rate(n[0]),
                datagrams_bit_per_s: rate(n[1]),
                active_need_bit_per_s: rate(n[2]),
                active: n[2] as u16,
                backlogged: n[3] as u16,
            };
            let report = Report {
                sequence: n[0],
                grant: n[1] % 8,
                since_grant_us: n[2],
                is_late: n[3] % 4 == 0,
                queue_us: (n[4] % 2 == 0).then_some(n[4]),
                base_us: n[5],
                target_us: n[6],
                inflight_bytes: n[7],
                slack_bytes: n[8],
                delivered_segments: n[9],
                retransmitted_segments: n[10],
                bulk_bit_per_s: rate(n[11]),
                message_need_bit_per_s: rate(n[13]),
                classes: vec![class(&n[..4]), class(&n[8..12])],
            };
            proptest::prop_assert!(coordinator.report(now, &id(["a", "b", "c"][n[14] as usize % 3]), report));
            for (_, grant) in coordinator.tick(now) {
                proptest::prop_assert!(grant.bulk_bit_per_s > 0.0 && grant.bulk_bit_per_s.is_finite());
                let bytes = wire::Message::Grant(grant.clone()).encode();
                proptest::prop_assert_eq!(wire::Message::decode(&bytes), Ok(wire::Message::Grant(grant)));
            }
        }
    }
}
