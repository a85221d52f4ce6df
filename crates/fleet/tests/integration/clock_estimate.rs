//! The bound of an offset is never violated, whatever the delays, for clocks that drift and wander as they
//! may.

use fleet::clock::{Batch, Edge, Offset, Probe, RATE_MAX_PPB, Unsynchronised, WANDER_MAX_PPB};
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

/// An agent's clock: its difference to the coordinator's, in billionths of a ns, as a line with bends.
#[derive(Debug, Clone)]
struct Simulated {
    start_ns: i64,
    /// From when on it gains how much, in ppb; the first holds before, too.
    rates: Vec<(u64, i64)>,
}

impl Simulated {
    fn difference(&self, at_ns: u64) -> i128 {
        let mut difference = i128::from(self.start_ns) * 1_000_000_000;
        let (mut since, mut rate) = self.rates[0];
        for &(from, next) in &self.rates[1..] {
            if from >= at_ns {
                break;
            }
            difference += i128::from(rate) * i128::from(from - since);
            (since, rate) = (from, next);
        }
        difference + i128::from(rate) * (i128::from(at_ns) - i128::from(since))
    }

    /// The agent's clock in whole nanoseconds, rounded down.
    fn shows(&self, at_ns: u64) -> u64 {
        let ns = i128::from(at_ns) + self.difference(at_ns).div_euclid(1_000_000_000);
        u64::try_from(ns).unwrap()
    }

    fn probe(&self, sent_ns: u64, delays: [u64; 3]) -> Probe {
        let t2_ns = sent_ns + delays[0];
        let t3_ns = t2_ns + delays[1];
        Probe { t1_ns: self.shows(sent_ns), t2_ns, t3_ns, t4_ns: self.shows(t3_ns + delays[2]) }
    }
}

/// Some ns, of any order of magnitude up to 10 s.
fn delay() -> impl Strategy<Value = u64> {
    (0_u32..34, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

/// A clock, and batches of probes: when, and each probe's pause before it and its delays there, within and
/// back.
fn session() -> impl Strategy<Value = (Simulated, Vec<Batch>)> {
    let wander_ppb = WANDER_MAX_PPB / 2;
    let mean_ppb = RATE_MAX_PPB - wander_ppb;
    let bends = prop::collection::vec((0..2000 * S, -wander_ppb..=wander_ppb), 1..8);
    let clock = (0..=(1_i64 << 50), -mean_ppb..=mean_ppb, bends);
    let probes = prop::collection::vec((delay(), [delay(), delay(), delay()]), 1..12);
    let batches = prop::collection::vec((0..2000 * S, probes), 1..80);
    (1000 * S..1 << 50, clock, batches).prop_map(|(start, (start_ns, mean, bends), batches)| {
        let mut rates: Vec<(u64, i64)> =
            bends.into_iter().map(|(at, wander)| (start + at, mean + wander)).collect();
        rates.sort_unstable();
        let clock = Simulated { start_ns, rates };
        let batches = batches.into_iter().map(|(at, probes)| {
            let mut now = start + at;
            let mut taken = probes.into_iter().map(|(pause, delays)| {
                now += pause;
                clock.probe(now, delays)
            });
            let mut batch = Batch::new(&taken.next().unwrap(), false).unwrap();
            for probe in taken {
                batch.add(&probe);
            }
            batch
        });
        let batches = batches.collect();
        (clock, batches)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn clock_bound_holds_over_the_session((clock, batches) in session(), at in 0..4000 * S) {
        let offset = Offset::from_batches(&batches).unwrap();
        let first = batches.iter().map(|batch| batch.lower.at_ns).min().unwrap();
        let edges = batches.iter().flat_map(|batch| [batch.lower.at_ns, batch.upper.at_ns]);
        for at in edges.chain([(first + at).saturating_sub(1000 * S)]) {
            let error = i128::from(offset.offset_ns(at)) * 1_000_000_000 - clock.difference(at);
            let bound = i128::from(offset.bound_ns(at)) * 1_000_000_000;
            prop_assert!(error.abs() <= bound, "at {at}: {error} of {bound}");
            let agent = offset.to_agent_ns(at);
            prop_assert!(agent.abs_diff(clock.shows(at)) <= offset.bound_ns(at) + 1);
            prop_assert!(offset.to_coordinator_ns(agent).abs_diff(at) <= 2);
        }
        for (_, rate_ppb) in &clock.rates {
            let error_ppm = (offset.drift_ppm() - *rate_ppb as f64 / 1e3).abs();
            prop_assert!(error_ppm <= offset.drift_bound_ppm() + 1e-6);
        }
        // Never wider than the best batch, there and then; of many, it may have been left out for its equal.
        let best = batches.iter().min_by_key(|batch| batch.bound_ns()).unwrap();
        let bound_most_ns = best.bound_ns() + 1 + fade(best);
        prop_assert!(batches.len() > 64 || offset.bound_ns(best.lower.at_ns) <= bound_most_ns);
    }

    #[test]
    fn one_probe_is_cristians_estimate(
        start_ns in 0..=(1_i64 << 60), sent in any::<u32>(), there in any::<u32>(), back in any::<u32>(),
    ) {
        let clock = Simulated { start_ns, rates: vec![(0, 0)] };
        let probe = clock.probe(u64::from(sent), [u64::from(there), 0, u64::from(back)]);
        let batch = Batch::new(&probe, false).unwrap();
        let offset = Offset::from_batches(&[batch]).unwrap();
        let theta = (i128::from(probe.t1_ns) - i128::from(probe.t2_ns) + i128::from(probe.t4_ns)
            - i128::from(probe.t3_ns)).div_euclid(2);
        prop_assert_eq!(i128::from(offset.offset_ns(probe.t2_ns)), theta);
        prop_assert_eq!(offset.rtt_min_ns, u64::from(there) + u64::from(back));
        prop_assert_eq!(batch.bound_ns(), offset.rtt_min_ns.div_ceil(2));
        prop_assert_eq!(offset.bound_ns(probe.t2_ns), batch.bound_ns() + 1);
    }

    /// What an agent reports may be anything.
    #[test]
    fn any_numbers_are_taken(
        batches in prop::collection::vec(
            (any::<[u64; 3]>(), any::<[i64; 2]>(), any::<bool>()), 0..5,
        ),
        probe in any::<[u64; 4]>(), at in any::<u64>(),
    ) {
        let [t1_ns, t2_ns, t3_ns, t4_ns] = probe;
        let probe = Probe { t1_ns, t2_ns, t3_ns, t4_ns };
        let batches: Vec<Batch> = batches.into_iter().map(|([x, y, n], [low, high], same_kernel)| {
            let (lower, upper) = (Edge { at_ns: x, offset_ns: low }, Edge { at_ns: y, offset_ns: high });
            let mut batch = Batch { lower, upper, n, rtt_min_ns: n, same_kernel };
            batch.add(&probe);
            batch.bound_ns();
            batch
        }).chain(Batch::new(&probe, false)).collect();
        if let Ok(offset) = Offset::from_batches(&batches) {
            for at in [at, 0, u64::MAX] {
                let _ = (offset.to_agent_ns(at), offset.to_coordinator_ns(at), offset.bound_ns(at));
            }
            prop_assert!(offset.drift_ppm().is_finite() && offset.drift_bound_ppm() >= 0.0);
            let text = serde_json::to_string(&offset).unwrap();
            prop_assert_eq!(serde_json::from_str::<Offset>(&text).unwrap(), offset);
        }
    }
}

/// What an edge loses until the other, ns.
fn fade(batch: &Batch) -> u64 {
    (batch.upper.at_ns.abs_diff(batch.lower.at_ns) * RATE_MAX_PPB.unsigned_abs()).div_ceil(S)
}

/// A batch of one probe at `at_ns` whose answer took `delay_ns` each way.
fn batch(clock: &Simulated, at_ns: u64, delay_ns: u64) -> Batch {
    Batch::new(&clock.probe(at_ns - delay_ns, [delay_ns, 0, delay_ns]), false).unwrap()
}

#[test]
fn several_batches_give_the_drift() {
    let clock = Simulated { start_ns: 7 * S as i64, rates: vec![(0, 50_000)] };
    let before = batch(&clock, 1000 * S, 50_000);
    let one = Offset::from_batches(&[before]).unwrap();
    assert_eq!((one.drift_ppm(), one.drift_bound_ppm()), (0.0, 200.0));
    // 200 ppm of 50 s are 10 ms.
    assert!((10_050_000..10_050_010).contains(&one.bound_ns(1050 * S)), "{}", one.bound_ns(1050 * S));

    let both = Offset::from_batches(&[before, batch(&clock, 1100 * S, 50_000)]).unwrap();
    assert!((both.drift_ppm() - 50.0).abs() < 0.01, "{}", both.drift_ppm());
    assert!((both.drift_bound_ppm() - 10.0 - 1.0).abs() < 0.01, "100 us in 100 s are 1 ppm");
    let error = both.offset_ns(1050 * S) - (clock.difference(1050 * S) / 1_000_000_000) as i64;
    assert!(error.abs() < 100, "half way it is interpolated: {error}");
    assert!(
        (550_000..650_000).contains(&both.bound_ns(1050 * S)),
        "10 to 11 ppm of 50 s: {}",
        both.bound_ns(1050 * S)
    );
}

#[test]
fn clocks_of_one_kernel_have_no_drift() {
    let probe = Probe { t1_ns: 300 * S, t2_ns: 1000, t3_ns: 1500, t4_ns: 300 * S + 2500 };
    let batch = Batch::new(&probe, true).unwrap();
    let offset = Offset::from_batches(&[batch]).unwrap();
    assert_eq!((offset.bound_ns(0), offset.bound_ns(1_000_000 * S)), (1001, 1001));
    assert_eq!(offset.offset_ns(1_000_000 * S), 300 * S as i64);
    assert_eq!(offset.drift_bound_ppm(), 0.0);
    let moved = Probe { t1_ns: probe.t1_ns + 5000, t4_ns: probe.t4_ns + 5000, ..probe };
    let moved = Batch::new(&moved, true).unwrap();
    let error = Offset::from_batches(&[batch, moved]).unwrap_err();
    assert!(matches!(error, Unsynchronised::Contradiction { .. }), "{error}");
}

#[test]
fn stopped_or_stepped_clock_is_unsynchronised() {
    let clock = Simulated { start_ns: 0, rates: vec![(0, 20_000)] };
    // Suspended for 10 ms within 10 s: 1000 ppm behind.
    let held = Simulated { start_ns: -10_000_000, ..clock.clone() };
    let error =
        Offset::from_batches(&[batch(&clock, 100 * S, 50_000), batch(&held, 110 * S, 50_000)]).unwrap_err();
    let Unsynchronised::Contradiction { rate_ppm } = error else { panic!("{error}") };
    assert!((-980.0..=-960.0).contains(&rate_ppm), "{rate_ppm}");
    assert!(error.to_string().contains("-970 ppm"), "{error}");
    assert_eq!(Offset::from_batches(&[]), Err(Unsynchronised::NoAnswer));
}

#[test]
fn wander_beyond_the_limit_is_unsynchronised() {
    let clock = Simulated { start_ns: 0, rates: vec![(0, 150_000), (200 * S, -150_000)] };
    let batches: Vec<Batch> = (1..=3).map(|i| batch(&clock, i * 100 * S, 50_000)).collect();
    let offset = Offset::from_batches(&batches).unwrap();
    assert_eq!((offset.drift_ppm(), offset.drift_bound_ppm()), (0.0, 200.0));
}

#[test]
fn probes_with_decreasing_times_are_rejected() {
    let good = Probe { t1_ns: 10, t2_ns: 110, t3_ns: 120, t4_ns: 40 };
    assert_eq!(good.rtt_ns(), Some(20));
    for bad in [Probe { t4_ns: 9, ..good }, Probe { t3_ns: 109, ..good }, Probe { t1_ns: 41, ..good }] {
        assert_eq!(Batch::new(&bad, false), None, "{bad:?}");
        let mut batch = Batch::new(&good, false).unwrap();
        assert!(!batch.add(&bad));
        assert_eq!(batch.n, 1);
    }
}
