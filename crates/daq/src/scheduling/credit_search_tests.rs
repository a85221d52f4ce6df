use super::*;

/// A model of a port with its sources.
#[derive(Debug, Clone, Copy)]
struct Port {
    sources: u32,
    fragment_bytes: u64,
    rate_bit_per_s: f64,
    buffer_bytes: f64,
    /// From an arrival that returns credit to the arrival that it causes, on an idle port.
    turn_s: f64,
}

impl Port {
    /// The event rate with a credit, without stalls.
    fn events_per_s(&self, credit: u32) -> f64 {
        let event_bits = f64::from(self.sources) * self.fragment_bytes as f64 * 8.0;
        let by_credit = f64::from(credit) / self.turn_s / f64::from(self.sources);
        (self.rate_bit_per_s / event_bits).min(by_credit)
    }

    fn overflows(&self, credit: u32) -> bool {
        f64::from(credit) * self.fragment_bytes as f64 > self.buffer_bytes
    }

    /// The best rate without a stall.
    fn best_per_s(&self) -> f64 {
        let fits = (self.buffer_bytes / self.fragment_bytes as f64) as u32;
        self.events_per_s(fits.clamp(1, self.sources))
    }

    fn round(&self, round: Round, random: &mut fastrand::Rng) -> RoundStats {
        let mut now_ns = 1_000;
        let mut stats = RoundStats::new(round, now_ns);
        // Noise of a round, and of each event.
        let luck = 0.97 + random.f64() * 0.06;
        while !stats.is_over(now_ns) {
            let usual_ns = 1e9 / self.events_per_s(round.credit) / (luck * (0.95 + random.f64() * 0.1));
            let stalled = self.overflows(round.credit) && random.u8(..100) < 70;
            let took_ns = usual_ns as u64 + if stalled { 205_000_000 } else { 0 };
            now_ns += took_ns;
            let wire_bytes = u64::from(self.sources) * self.fragment_bytes;
            let spread_ns = (wire_bytes as f64 * 8e9 / self.rate_bit_per_s) as u64;
            let transit_ns = if stalled { 205_000_000 } else { 1_000_000 };
            stats.add_event(took_ns, transit_ns, true, (wire_bytes, spread_ns.max(took_ns * 9 / 10)), now_ns);
        }
        stats
    }
}

fn search(port: &Port, buffer_bytes: Option<u64>, seed: u64) -> (Steered, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut search = CreditSearch::new(port.sources, port.fragment_bytes, buffer_bytes);
    let mut rounds = 0;
    while let Some(round) = search.next() {
        assert!(round.credit >= 1 && round.credit <= port.sources, "{round:?}");
        search.add_round(&port.round(round, &mut random));
        rounds += 1;
        assert!(rounds <= ROUNDS_MAX, "it does not end");
    }
    let [granted, push] = search.compared_rounds().map(|round| port.round(round, &mut random));
    search.set_compared([&granted, &push]);
    (search.result(), rounds)
}

const PORTS: [Port; 7] = {
    let kib =
        Port { sources: 1000, fragment_bytes: 1154, rate_bit_per_s: 1e9, buffer_bytes: 65e3, turn_s: 200e-6 };
    [
        kib,
        Port { rate_bit_per_s: 200e6, ..kib },
        Port { sources: 80, rate_bit_per_s: 200e6, ..kib },
        // The best credit would exceed the buffer.
        Port { turn_s: 900e-6, ..kib },
        Port { sources: 40, fragment_bytes: 34_350, rate_bit_per_s: 200e6, turn_s: 1.5e-3, ..kib },
        // Never loses anything.
        Port { buffer_bytes: 1e12, rate_bit_per_s: 2e9, ..kib },
        Port { sources: 10_000, buffer_bytes: 262_144.0, ..kib },
    ]
};

#[test]
fn found_credit_is_close_to_the_best() {
    let (mut near, mut all, mut rounds_all) = (0, 0, 0);
    for port in PORTS {
        for seed in 0..100 {
            let (result, rounds) = search(&port, None, seed);
            let share = port.events_per_s(result.credit) / port.best_per_s();
            assert!(share > 0.85, "{share} of the best: {result:?} {port:?}");
            assert!(!port.overflows(result.credit), "{result:?} {port:?}");
            near += u32::from(share >= 0.95);
            all += 1;
            rounds_all += rounds;
        }
    }
    assert!(f64::from(near) >= 0.98 * f64::from(all), "{near} of {all}");
    assert!(rounds_all as f64 / f64::from(all) <= 12.0, "{rounds_all} rounds for {all} searches");
}

/// A short round may have been lucky.
#[test]
fn best_credit_is_confirmed() {
    let mut search = CreditSearch::new(8, 1000, Some(4_000));
    let mut rounds = Vec::new();
    while let Some(round) = search.next() {
        // Four credits are lucky once.
        let took_ns = match (round.credit, rounds.contains(&round.credit)) {
            (4, false) => 900_000,
            (4, true) => 1_200_000,
            _ => 1_000_000,
        };
        rounds.push(round.credit);
        let mut stats = RoundStats::new(round, 0);
        (1..=u64::from(round.events))
            .for_each(|n| stats.add_event(took_ns, 1, true, (8_000, took_ns), n * took_ns));
        search.add_round(&stats);
    }
    assert_eq!((rounds, search.result().credit), (vec![2, 4, 8, 4, 2], 2));
}

#[test]
fn search_estimates_the_port() {
    let (result, _) = search(&PORTS[3], None, 5);
    let buffer_bytes = result.buffer_bytes.expect("something stalled") as f64;
    assert!((buffer_bytes / PORTS[3].buffer_bytes - 1.0).abs() < 0.15, "{result:?}");
    assert!(result.push.is_some_and(|push| push.credit == 1000 && push.stalled > 0), "also where it stalls");
    assert!(result.granted.is_some_and(|granted| granted.credit == result.credit), "{result:?}");
    let (result, _) = search(&PORTS[5], None, 5);
    assert_eq!(result.buffer_bytes, None);
    let rate = result.rate_bit_per_s.expect("fragments came");
    assert!((rate / PORTS[5].rate_bit_per_s - 1.0).abs() < 0.2, "{result:?}");
    assert!(result.push.is_some_and(|push| push.credit == 1000));
    let mut search = CreditSearch { link_bit_per_s: Some(1e9), ..CreditSearch::new(1000, 1154, None) };
    let mut random = fastrand::Rng::with_seed(1);
    while let Some(round) = search.next() {
        search.add_round(&PORTS[5].round(round, &mut random));
    }
    let steered_through = search.result();
    assert_eq!((steered_through.rate_bit_per_s, steered_through.stagger_ns), (Some(1e9), 9232));
    assert!(result.stagger_ns >= 4_000 && result.stagger_ns <= 6_000, "{result:?}");
}

#[test]
fn port_that_always_stalls_gets_the_least_credit() {
    let port = Port { buffer_bytes: 100.0, ..PORTS[1] };
    let (result, rounds) = search(&port, Some(1 << 20), 1);
    assert_eq!(result.credit, 1);
    assert!(rounds <= 14, "{rounds}");
    assert!(result.granted.is_some_and(|granted| granted.stalled > 0), "{result:?}");
}

/// A few stalls say little of a rate: 70 % of the events of the port stall here.
#[test]
fn comparison_measures_rates_as_a_long_run_does() {
    let port = Port { buffer_bytes: 100.0, ..PORTS[1] };
    let of_long_run = 1.0 / (0.7 * 0.205 + 1.0 / port.events_per_s(1000));
    let rates: Vec<f64> = (0..100)
        .map(|seed| search(&port, None, seed).0.push.expect("it was compared").events_per_s)
        .collect();
    let near = rates.iter().filter(|rate| (*rate / of_long_run - 1.0).abs() < 0.5).count();
    assert!(near >= 95, "{near}: {of_long_run} {rates:?}");
}

#[test]
fn compared_rounds_have_equal_bounds_and_stalls_do_not_end_them() {
    let search = CreditSearch::new(100, 1154, None);
    let [granted, push] = search.compared_rounds();
    assert_eq!((granted.events, granted.push, push.events, push.push), (200, false, 200, true));
    for round in [granted, push] {
        let mut stats = RoundStats::new(round, 1_000);
        (1..=9).for_each(|n| stats.add_event(200_000_000, STALL_NS, true, (8_000, 1), n * 200_000_000));
        assert_eq!((stats.is_over(1_900_000_000), stats.is_over(2_000_001_000)), (false, true));
    }
}

#[test]
fn times_of_a_round_are_those_of_its_complete_events() {
    let mut stats = RoundStats::new(Round::probe(4, 12), 0);
    stats.add_event(1_000_000_000, 0, false, (0, 0), 1_000_000_000);
    let none = stats.trial();
    assert_eq!((none.events, none.complete, none.stalled), (1, 0, 1));
    assert_eq!((none.completion_p99_ms, none.events_per_s), (None, 0.0), "nothing completed in a second");
    stats.add_event(3_000_000, 1, true, (8_000, 1), 2_000_000_000);
    let one = stats.trial();
    assert_eq!((one.completion_p99_ms, one.events_per_s, one.lasted_s), (Some(3.0), 0.5, 2.0));
}

#[test]
fn search_ends_early_for_one_source_or_on_stop() {
    let (result, rounds) = search(&Port { sources: 1, ..PORTS[0] }, None, 1);
    assert!(result.credit == 1 && rounds <= 3, "{rounds}");
    let mut search = CreditSearch::new(1000, 1154, Some(65_536));
    let first = search.next().expect("a round").credit;
    search.stop();
    assert_eq!((search.next(), search.result().credit), (None, first));
}
