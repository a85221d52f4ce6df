use std::net::{IpAddr, Ipv4Addr};

use super::*;

/// A socket of 10.0.0.1 with a round-trip time of 1 ms.
pub fn sample(id: u64) -> SocketSample {
    SocketSample {
        id,
        peer: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        class: 0,
        time_ns: 0,
        srtt_us: 1000,
        min_rtt_us: 1000,
        segs_in: 0,
        delivered: 0,
        mss: 1000,
        unacked: 0,
        sacked: 0,
        lost: 0,
        retrans: 0,
        total_retrans: 0,
        notsent_bytes: 0,
    }
}

const BULK: ClassSettings = ClassSettings::Bulk { weight: 1.0, floor: 0.0, ceiling: f64::INFINITY };
const RANK: Rank = Rank { priority: 1, weight: 1.0, floor: 0.0, ceiling: f64::INFINITY, clients: 1.0 };
const URGENT: ClassSettings = ClassSettings::Urgent { target_s: 0.05, message_bytes: 10_000.0, rank: RANK };
const PERIOD_NS: u64 = 50_000_000;

/// A law with four backlogged bulk sockets to one peer, whose samples each step moves on.
struct Feed {
    law: Law,
    now_ns: u64,
    samples: Vec<SocketSample>,
}

impl Feed {
    fn new(classes: Vec<ClassSettings>) -> Self {
        let settings = Settings {
            period_s: Settings::PERIOD_S,
            delay_s: 0.0,
            start_bit_per_s: START_BIT_PER_S,
            given_bit_per_s: None,
            classes,
        };
        let bulk = |id| SocketSample { notsent_bytes: 1_000_000, unacked: 1, ..sample(id) };
        let mut feed = Self { law: Law::new(settings), now_ns: 0, samples: (0..4).map(bulk).collect() };
        feed.law.tick(0, &feed.samples);
        feed
    }

    /// A tick later: the bulk sockets delivered `bulk` bit/s together, with this round-trip time.
    fn step(&mut self, bulk: f64, rtt_ms: f64) -> Control {
        self.step_after(PERIOD_NS, bulk, rtt_ms)
    }

    fn step_after(&mut self, after_ns: u64, bulk: f64, rtt_ms: f64) -> Control {
        self.now_ns += after_ns;
        let sockets = self.samples.iter().filter(|sample| sample.class == 0).count();
        for sample in &mut self.samples {
            sample.time_ns = self.now_ns;
            if sample.class != 0 {
                continue;
            }
            let bytes = bulk / sockets as f64 * after_ns as f64 / 8e9;
            let segments = (bytes / f64::from(sample.mss)).round() as u32;
            sample.delivered += segments;
            sample.segs_in += segments;
            let kept = (7.0f64 / 8.0).powi(segments.min(60) as i32);
            sample.srtt_us =
                (f64::from(sample.srtt_us) * kept + rtt_ms * 1000.0 * (1.0 - kept)).round() as u32;
        }
        self.law.tick(self.now_ns, &self.samples)
    }

    fn set(&mut self, change: impl Fn(&mut SocketSample)) {
        self.samples.iter_mut().for_each(change);
    }

    /// Ticks with everything delivered and no queue.
    fn run(&mut self, ticks: usize) -> Control {
        let mut control = self.step(self.law.applied, 1.0);
        for _ in 1..ticks {
            control = self.step(control.applied_bit_per_s, 1.0);
        }
        control
    }
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 0.05
}

#[test]
fn bulk_sockets_share_the_rate_and_urgent_ones_are_not_paced() {
    let settings = Settings { classes: vec![BULK, URGENT], ..Feed::new(vec![BULK]).law.settings };
    let mut law = Law::new(settings);
    let active = |id| SocketSample { unacked: 1, ..sample(id) };
    let samples = [active(1), active(2), sample(3), SocketSample { class: 1, ..active(4) }];
    let rates = law.tick(0, &samples).rates;
    let given: Vec<_> = rates.iter().map(|rate| (rate.id, rate.bit_per_s)).collect();
    assert_eq!(given, [(1, 2.5e6), (2, 2.5e6), (3, 2.5e6)]);
    // The same again is not set again; a new socket is.
    let samples =
        [active(1), active(2), sample(3), sample(5)].map(|s| SocketSample { time_ns: PERIOD_NS, ..s });
    let rates = law.tick(PERIOD_NS, &samples).rates;
    assert_eq!(rates.iter().map(|rate| rate.id).collect::<Vec<_>>(), [5]);
}

#[test]
fn weights_floors_and_ceilings_of_bulk_classes_are_kept() {
    let heavy = ClassSettings::Bulk { weight: 3.0, floor: 0.0, ceiling: f64::INFINITY };
    let capped = ClassSettings::Bulk { weight: 1.0, floor: 0.0, ceiling: 0.4e6 };
    let floored = ClassSettings::Bulk { weight: 1.0, floor: 2.6e6, ceiling: f64::INFINITY };
    let rates_of = |classes: [ClassSettings; 2], idle: bool| {
        let mut law = Law::new(Settings { classes: classes.to_vec(), ..Feed::new(vec![BULK]).law.settings });
        let second = SocketSample { class: 1, unacked: u32::from(!idle), ..sample(2) };
        let rates = law.tick(0, &[SocketSample { unacked: 1, ..sample(1) }, second]).rates;
        [rates[0].bit_per_s, rates[1].bit_per_s]
    };
    assert_eq!(rates_of([BULK, heavy], false), [1.25e6, 3.75e6]);
    assert_eq!(rates_of([BULK, capped], false), [4.6e6, 0.4e6]);
    assert_eq!(rates_of([BULK, floored], false), [2.4e6, 2.6e6]);
    assert_eq!(rates_of([BULK, BULK], true), [5e6, 2.5e6], "an idle class can start");
}

#[test]
fn many_sockets_get_the_least_rate_and_none_is_unlimited() {
    let mut law = Law::new(Feed::new(vec![BULK]).law.settings);
    let samples: Vec<_> = (0..1000).map(|id| SocketSample { unacked: 1, ..sample(id) }).collect();
    let control = law.tick(0, &samples);
    assert!(control.rates.iter().all(|rate| rate.bit_per_s >= SOCKET_RATE_MIN));
    assert_eq!(control.rates.len(), 1000);
}

#[test]
fn bulk_grows_faster_and_faster_while_there_is_no_queue() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    let mut before = START_BIT_PER_S;
    let mut steps = Vec::new();
    for _ in 0..14 {
        let control = feed.step(before, 1.0);
        assert_eq!(control.state, State::Growing);
        steps.push(control.bulk_bit_per_s / before - 1.0);
        before = control.bulk_bit_per_s;
    }
    assert!(near(steps[0], 0.01) && near(steps[1], 0.013) && near(steps[2], 0.0169), "{steps:?}");
    // 9.8 ms of queue, in 51 ms, by 1.3.
    let most = 0.2 * 0.049 / 0.051 / 1.3;
    assert!(near(steps[13], most), "{steps:?} {most}");
}

#[test]
fn bulk_does_not_grow_beyond_what_it_uses_or_delivers() {
    let mut feed = Feed::new(vec![BULK]);
    feed.set(|sample| sample.notsent_bytes = 0);
    let unused = (0..10).map(|_| feed.step(3e6, 1.0)).last().unwrap();
    assert_eq!(unused.bulk_bit_per_s, START_BIT_PER_S, "60 % used, nothing waits");
    let used = (0..5).map(|_| feed.step(6e6, 1.0)).last().unwrap();
    assert!(used.bulk_bit_per_s > START_BIT_PER_S, "everything used");
    let mut feed = Feed::new(vec![BULK]);
    let control = (0..60).map(|_| feed.step(8e6, 1.0)).last().unwrap();
    assert!(near(control.bulk_bit_per_s, 1.35 * 8e6), "{control:?}");
    assert!(near(control.capacity_bit_per_s, 8e6), "{control:?}");
}

#[test]
fn short_queue_grows_bulk_by_one_percent() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    let control = feed.run(10);
    // Between half of the target of 9.8 ms and all of it.
    let next = feed.step(control.bulk_bit_per_s, 1.0 + 7.0);
    assert_eq!(next.state, State::Holding);
    assert!((next.bulk_bit_per_s / control.bulk_bit_per_s - 1.01).abs() < 1e-6);
}

#[test]
fn queue_starts_an_episode_whose_first_tick_changes_nothing() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    let before = (0..40).map(|_| feed.step(20e6, 1.0)).last().unwrap();
    let first = feed.step(10e6, 31.0);
    assert_eq!((first.state, first.bulk_bit_per_s), (State::Draining, before.bulk_bit_per_s));
    assert_eq!(first.applied_bit_per_s, before.applied_bit_per_s);
    let second = feed.step(10e6, 31.0);
    assert!(near(second.capacity_bit_per_s, 10e6), "{second:?}");
    assert!(near(second.bulk_bit_per_s, 0.97 * second.capacity_bit_per_s), "{second:?}");
    // 25 ms too much at 10 Mbit/s within 0.25 s.
    assert!(
        near(second.applied_bit_per_s, second.bulk_bit_per_s - 10e6 * (0.03 - 0.0049) / 0.25),
        "{second:?}"
    );
    let long = feed.step(10e6, 901.0);
    assert!(near(long.applied_bit_per_s, 0.3 * long.bulk_bit_per_s), "{long:?}");
    // When the queue is gone, bulk has its rate again.
    let after = feed.step(10e6, 1.0);
    assert_eq!(after.state, State::Growing);
    assert_eq!(after.applied_bit_per_s, after.bulk_bit_per_s);
}

#[test]
fn urgent_need_is_left_free_while_a_queue_stands() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    let urgent = |id| SocketSample { class: 1, unacked: 1, ..sample(id) };
    feed.samples.extend([urgent(10), urgent(11)]);
    (0..40).for_each(|_| drop(feed.step(20e6, 1.0)));
    feed.step(20e6, 31.0);
    let control = feed.step(20e6, 31.0);
    let need = 2.0 * 8.0 * 10_000.0 / (0.85 * 0.049);
    assert!(near(control.bulk_bit_per_s, 0.97 * control.capacity_bit_per_s - need), "{control:?}");
    // A message size that is learned later counts from then on.
    feed.law.set_message_bytes(1, 20_000.0);
    let control = feed.step(20e6, 31.0);
    assert!(near(control.bulk_bit_per_s, 0.97 * control.capacity_bit_per_s - 2.0 * need), "{control:?}");
}

#[test]
fn urgent_round_trip_counts_without_its_own_serialisation() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    feed.run(5);
    // Bulk is silent; an urgent socket sees 9 ms, of which 4 x 10 kB at 5 Mbit/s are its own.
    let mut urgent = SocketSample { class: 1, unacked: 1, time_ns: feed.now_ns, ..sample(10) };
    feed.samples.push(urgent);
    feed.step(0.0, 1.0);
    urgent = SocketSample {
        time_ns: feed.now_ns + PERIOD_NS,
        segs_in: 60,
        delivered: 60,
        srtt_us: 9000,
        ..urgent
    };
    feed.samples[4] = urgent;
    let control = feed.step(0.0, 1.0);
    let own_s = 4.0 * 10_000.0 / control.capacity_bit_per_s;
    assert!((control.queue_s.unwrap() - (0.008 - own_s)).abs() < 1e-4, "{control:?} {own_s}");
}

#[test]
fn data_on_its_way_reveals_a_queue_before_round_trip_times_do() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    (0..40).for_each(|_| drop(feed.step(20e6, 1.0)));
    feed.set(|sample| (sample.unacked, sample.mss) = (100, 1000));
    // 3.2 Mbit are on their way.
    let control = feed.step(20e6, 1.0);
    assert_eq!(control.state, State::Draining);
    assert!(near(control.queue_s.unwrap(), 3.2e6 / 20e6 - 0.001), "{control:?}");
    feed.set(|sample| (sample.sacked, sample.lost, sample.retrans) = (90, 10, 1));
    assert_eq!(feed.step(20e6, 1.0).state, State::Growing);
}

#[test]
fn losses_cut_a_tenth_and_lower_the_target_of_the_queue() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    let before = (0..40).map(|_| feed.step(20e6, 1.0)).last().unwrap();
    // 3.2 ms are below the target, and above 0.3 of it.
    feed.set(|sample| sample.total_retrans += 5);
    feed.step(20e6, 4.2);
    let control = feed.step(20e6, 4.2);
    assert_eq!(control.state, State::Draining);
    assert!(near(control.bulk_bit_per_s, 0.9 * before.bulk_bit_per_s), "{control:?}");
    (0..3).for_each(|_| drop(feed.step(20e6, 1.0)));
    assert_eq!(feed.step(20e6, 5.5).state, State::Draining, "the target is 4 ms now");
    let mut feed = Feed::new(vec![BULK, URGENT]);
    (0..40).for_each(|_| drop(feed.step(20e6, 1.0)));
    feed.set(|sample| sample.total_retrans += 5);
    assert_eq!(feed.step(20e6, 2.0).state, State::Growing, "there is no queue");
}

#[test]
fn idle_bulk_freezes_and_halves_once() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    let before = (0..60).map(|_| feed.step(20e6, 1.0)).last().unwrap().bulk_bit_per_s;
    feed.set(|sample| (sample.unacked, sample.notsent_bytes) = (0, 0));
    let rates: Vec<f64> = (0..200).map(|_| feed.step(0.0, 1.0).bulk_bit_per_s).collect();
    assert_eq!((rates[0], rates[39]), (before, before));
    assert_eq!((rates[41], rates[199]), (before / 2.0, before / 2.0));
    (feed.law.bulk, feed.law.has_halved) = (1e6, false);
    assert_eq!(feed.step(0.0, 1.0).bulk_bit_per_s, 1e6, "a slow link is not taken for a faster one");
}

#[test]
fn without_round_trip_times_bulk_recovers_slowly_to_the_start() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    feed.law.bulk = 1e6;
    let first = feed.step(0.0, 1.0);
    assert_eq!((first.state, first.queue_s), (State::Blind, None));
    assert!((first.bulk_bit_per_s - 1.02e6).abs() < 1.0);
    let last = (0..200).map(|_| feed.step(0.0, 1.0)).last().unwrap();
    assert_eq!(last.bulk_bit_per_s, START_BIT_PER_S);
}

#[test]
fn late_tick_ends_the_episode_and_changes_nothing() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    let before = (0..40).map(|_| feed.step(20e6, 1.0)).last().unwrap();
    feed.step(20e6, 31.0);
    let late = feed.step_after(4 * PERIOD_NS, 90e6, 31.0);
    assert_eq!((late.state, late.queue_s), (State::Late, None));
    assert_eq!(late.bulk_bit_per_s, before.bulk_bit_per_s);
    assert_eq!(late.capacity_bit_per_s, before.capacity_bit_per_s);
    // The next queue is the first of a new episode.
    assert_eq!(feed.step(20e6, 31.0).bulk_bit_per_s, before.bulk_bit_per_s);
}

#[test]
fn lease_is_followed_and_then_growth_is_additive() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    feed.law.set_lease(Lease { bulk_bit_per_s: 8e6, hosts: 2, until_ns: 1_000_000_000, ..Lease::default() });
    let control = feed.step(8e6, 31.0);
    assert_eq!((control.state, control.bulk_bit_per_s), (State::Leased, 8e6));
    let leased = (0..25).map(|_| feed.step(8e6, 1.0)).last().unwrap();
    assert_eq!(leased.state, State::Growing);
    let next = feed.step(8e6, 1.0);
    assert!(next.bulk_bit_per_s - leased.bulk_bit_per_s < 2e6, "additive: {next:?}");
    feed.step(8e6, 31.0);
    let cut = feed.step(8e6, 31.0);
    assert!(near(cut.bulk_bit_per_s, 0.9 * cut.capacity_bit_per_s), "{cut:?}");
}

#[test]
fn floor_and_ceiling_bound_bulk() {
    let bounded = |floor, ceiling| ClassSettings::Bulk { weight: 1.0, floor, ceiling };
    let mut feed = Feed::new(vec![bounded(6e6, 7e6), URGENT]);
    assert_eq!(feed.law.bulk, 6e6);
    let highest = (0..60).map(|_| feed.step(7e6, 1.0)).last().unwrap();
    assert_eq!(highest.bulk_bit_per_s, 7e6);
    let lowest = (0..40).map(|_| feed.step(1e6, 400.0)).last().unwrap();
    assert_eq!((lowest.bulk_bit_per_s, lowest.applied_bit_per_s), (6e6, 6e6));
}

#[test]
fn given_capacity_is_shared_without_looking_for_a_queue() {
    let mut feed = Feed::new(vec![BULK, URGENT]);
    feed.law = Law::new(Settings { given_bit_per_s: Some(20e6), ..feed.law.settings });
    // One message of 10,000 bytes needs 80,000 bit in 0.85 * 50 ms.
    let need = 80_000.0 / (0.85 * 0.05);
    let control = (0..3).map(|_| feed.step(15e6, 30.0)).last().unwrap();
    assert_eq!(control.state, State::Given);
    assert!((control.bulk_bit_per_s - (20e6 - need)).abs() < 1.0, "{control:?}");
    assert_eq!(control.applied_bit_per_s, control.bulk_bit_per_s);
    // Urgent datagrams take from bulk, and those of bulk from its TCP sockets.
    feed.law.set_datagrams(vec![2e6, 1e6]);
    let control = feed.step(15e6, 30.0);
    assert!((control.bulk_bit_per_s - (19e6 - need)).abs() < 1.0, "{control:?}");
    assert!((control.applied_bit_per_s - (17e6 - need)).abs() < 1.0, "{control:?}");
}

#[test]
fn datagrams_of_a_class_count_against_its_ceiling() {
    let class = ClassSettings::Bulk { weight: 1.0, floor: 0.0, ceiling: 5e6 };
    let settings = Settings { given_bit_per_s: Some(20e6), ..Feed::new(vec![class]).law.settings };
    let mut law = Law::new(settings);
    law.set_datagrams(vec![3e6]);
    let sample = SocketSample { unacked: 1, ..sample(1) };
    assert_eq!(law.tick(0, &[sample]).rates[0].bit_per_s, 2e6);
}

proptest::proptest! {
    #[test]
    fn no_samples_make_the_law_panic_or_leave_its_bounds(
        ticks in proptest::collection::vec(
            (0u64..300_000_000, proptest::collection::vec(proptest::num::u32::ANY, 40)), 1..20),
    ) {
        let mut law = Law::new(Settings {
            period_s: 0.05,
            delay_s: 0.0,
            start_bit_per_s: START_BIT_PER_S,
            given_bit_per_s: None,
            classes: vec![ClassSettings::Bulk { weight: 1.0, floor: 1e6, ceiling: 1e8 }, URGENT],
        });
        let mut now_ns = 0;
        for (after_ns, numbers) in ticks {
            now_ns += after_ns;
            let samples: Vec<SocketSample> = numbers.chunks(10).map(|n| SocketSample {
                id: u64::from(n[0] % 4),
                class: (n[0] / 4 % 3) as usize,
                time_ns: now_ns.saturating_sub(u64::from(n[1] % 100)),
                srtt_us: n[1],
                min_rtt_us: n[2],
                segs_in: n[3],
                delivered: n[4],
                mss: n[5] % 65_536,
                unacked: n[6],
                sacked: n[7],
                lost: n[8],
                retrans: n[9],
                total_retrans: n[9],
                notsent_bytes: n[6],
                ..sample(0)
            }).collect();
            let control = law.tick(now_ns, &samples);
            proptest::prop_assert!((1e6..=1e8).contains(&control.bulk_bit_per_s), "{:?}", control);
            proptest::prop_assert!((1e6..=1e8).contains(&control.applied_bit_per_s), "{:?}", control);
            proptest::prop_assert!((1.0..f64::MAX).contains(&control.capacity_bit_per_s));
            proptest::prop_assert!(control.queue_s.is_none_or(|s| s >= 0.0 && s.is_finite()));
            proptest::prop_assert!(control.rates.iter().all(|rate| rate.bit_per_s >= SOCKET_RATE_MIN));
        }
    }
}
