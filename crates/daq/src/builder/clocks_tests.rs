use super::*;

/// A group whose clock is ahead and drifts; most answers are slow.
struct Group {
    ahead_ns: f64,
    ppm: f64,
    random: fastrand::Rng,
}

impl Group {
    fn at(&self, builder_ns: u64) -> u64 {
        (builder_ns as f64 * (1.0 + self.ppm / 1e6) + self.ahead_ns) as u64
    }

    fn way_ns(&mut self) -> u64 {
        let slow = if self.random.u8(..100) < 85 { self.random.u64(..2_000_000) } else { 0 };
        6_000 + self.random.u64(..5_000) + slow
    }
}

/// Probes and answers until `until_ns`; returns the last time.
fn talk(clocks: &mut Clocks, group: &mut Group, mut now_ns: u64, until_ns: u64) -> u64 {
    while now_ns < until_ns {
        now_ns = now_ns.max(clocks.next_due_ns().expect("there is a group"));
        while let Some(probe) = clocks.next_probe(now_ns) {
            let [there_ns, back_ns] = [(); 2].map(|()| group.way_ns());
            let received_ns = group.at(now_ns + there_ns);
            let answered_ns = group.at(now_ns + there_ns + 1_000);
            let back_ns = now_ns + there_ns + 1_000 + back_ns;
            assert!(clocks.handle_answer(probe.number, received_ns, answered_ns, back_ns));
            assert!(!clocks.handle_answer(probe.number, received_ns, answered_ns, back_ns), "only once");
        }
    }
    now_ns
}

#[test]
fn times_of_a_drifting_group_are_converted() {
    // The bound of a long hold has to be as good at its beginning as at its end.
    for (seed, ahead_ns, ppm, hold_s, bound_max_ns) in [
        (1, 5e12, 20.0, 10, 20_000),
        (2, -4e11, -80.0, 10, 20_000),
        (3, 1e6, 0.0, 10, 20_000),
        (4, 1e6, 5.0, 120, 30_000),
    ] {
        let mut group = Group { ahead_ns, ppm, random: fastrand::Rng::with_seed(seed) };
        let mut clocks = Clocks::new(8);
        let start_ns = 1_000_000_000_000;
        assert_eq!(clocks.join(7, 0, false, start_ns).0, clocks.join(7, 0, false, start_ns).0);
        let from_ns = talk(&mut clocks, &mut group, start_ns, start_ns + 1_000_000_000);
        let to_ns = talk(&mut clocks, &mut group, from_ns, from_ns + hold_s * 1_000_000_000);
        assert!(clocks.has_initial_estimate());
        let now_ns = to_ns - 100_000_000;
        let seen_ns = clocks.send_time(0, group.at(now_ns), now_ns, now_ns).known().expect("it answered");
        assert!(seen_ns.abs_diff(now_ns) < 50_000, "{} off", seen_ns.abs_diff(now_ns));
        clocks.probe_again(to_ns);
        talk(&mut clocks, &mut group, to_ns, to_ns + 1_000_000_000);
        let report = &clocks.report((from_ns, to_ns))[0];
        let middle_ns = from_ns + (to_ns - from_ns) / 2;
        let true_ns = group.at(middle_ns) as i64 - middle_ns as i64;
        let (offset_ns, bound_ns) = (report.offset_ns.unwrap(), report.bound_ns.unwrap());
        assert!(offset_ns.abs_diff(true_ns) <= bound_ns, "{report:?}: {true_ns}");
        assert!(bound_ns <= bound_max_ns, "{report:?}");
        assert!((report.drift_ppm.unwrap() - ppm).abs() < 12.0, "{report:?}");
        assert_eq!((report.sources, report.violations), (2, None));
    }
}

#[test]
fn clock_of_the_same_kernel_stays_within_the_bound() {
    let mut group = Group { ahead_ns: 0.0, ppm: 0.0, random: fastrand::Rng::with_seed(4) };
    let mut clocks = Clocks::new(8);
    clocks.join(7, 0, true, 5);
    let end_ns = talk(&mut clocks, &mut group, 5, 20_000_000_000);
    let report = &clocks.report((1_000_000_000, end_ns))[0];
    assert_eq!((report.violations, report.same_kernel), (Some(0), true));
    assert_eq!(clocks.send_time(0, 77, 77, 77), SendTime::Known(77));
    let mut other = Group { ahead_ns: 1e9, ..group };
    let mut clocks = Clocks::new(8);
    clocks.join(7, 0, true, 5);
    talk(&mut clocks, &mut other, 5, 2_000_000_000);
    assert!(!clocks.report((0, 1))[0].same_kernel, "the clocks differ by a second");
}

#[test]
fn number_of_a_group_that_left_is_reused() {
    let mut clocks = Clocks::new(2);
    assert_eq!([clocks.join(1, 0, false, 0), clocks.join(2, 0, false, 0)], [(0, true), (1, true)]);
    for id in 3..100 {
        clocks.leave(1);
        assert_eq!(clocks.join(id, 0, false, 0), (1, true));
    }
    assert_eq!((clocks.join(1, 0, false, 0), clocks.clocks.len()), ((0, false), 2));
}

#[test]
fn unanswered_probes_and_unexpected_answers_are_ignored() {
    let mut clocks = Clocks::new(8);
    assert_eq!((clocks.next_due_ns(), clocks.next_probe(5)), (None, None));
    clocks.join(1, 0, false, 0);
    for k in 0..20 {
        assert!(clocks.next_probe(k * 4_000_000_000).is_some());
    }
    assert_eq!(clocks.send_time(0, 5, 5, 5), SendTime::Unknown);
    for number in [0, 1, 20 << 32, u64::MAX] {
        assert!(!clocks.handle_answer(number, 1, 1, 1));
    }
    let now_ns = 80_000_000_000;
    assert!(clocks.handle_answer(20, now_ns, now_ns, now_ns));
    assert_eq!(clocks.next_due_ns(), Some(0), "the row goes on at once");
    clocks.leave(0);
    assert_eq!(clocks.next_probe(1_000_000_000_000), None);
    assert_eq!(clocks.report((0, 10))[0].sources, 1, "it was there");
}

#[test]
fn answer_triggers_the_next_probe_of_its_row() {
    let mut clocks = Clocks::new(8);
    clocks.join(1, 0, false, 0);
    clocks.join(2, 1, false, 0);
    let first = clocks.next_probe(1_000).expect("a row begins").number;
    assert_eq!(clocks.next_probe(2_000), None, "neither a second probe without an answer, nor another group");
    let mut number = first;
    for probe in 1..INITIAL_ROW {
        assert!(clocks.handle_answer(number, 9_000, 9_000, 9_000));
        number = clocks.next_probe(9_000).expect("the row goes on").number;
        assert_eq!(number, first + u64::from(probe));
    }
    assert!(clocks.handle_answer(number, 9_000, 9_000, 9_000));
    assert_eq!(clocks.next_probe(9_000), None, "the row is over");
    // A late answer to an earlier row does not continue this one.
    let other = clocks.next_probe(2 * APART_NS).expect("the other group's row").number;
    assert!(clocks.next_probe(100_000_000).is_some());
    let again = clocks.next_probe(100_000_000 + 2 * APART_NS).expect("a new row of the other group").number;
    assert_eq!(again, other + 1);
    assert!(clocks.handle_answer(other, 300_000_000, 300_000_000, 300_000_000));
    assert_ne!(clocks.next_due_ns(), Some(0));
}

#[test]
fn send_times_before_the_trigger_or_after_the_arrival_are_implausible() {
    const S: u64 = 1_000_000_000;
    let mut group = Group { ahead_ns: 5e12, ppm: 20.0, random: fastrand::Rng::with_seed(5) };
    let mut other = Clocks::new(8);
    other.join(7, 0, false, 1_000 * S);
    talk(&mut other, &mut group, 1_000 * S, 1_002 * S);
    let mut same = Clocks::new(8);
    same.join(7, 0, true, 5);
    // Triggered at 1,001 s, arrived 10 ms later.
    let (from_ns, to_ns) = (1_001 * S, 1_001 * S + 10_000_000);
    for (at_ns, is_plausible) in [
        (from_ns + 1_000_000, true),
        (from_ns - 500_000, true),
        (to_ns + 500_000, true),
        (from_ns - 3_000_000, false),
        (to_ns + 3_000_000, false),
        (0, false),
        (9_000 * S, false),
    ] {
        let found = same.send_time(0, at_ns, from_ns, to_ns);
        assert_eq!(found != SendTime::Implausible, is_plausible, "{at_ns}: {found:?}");
        let sent_ns = if at_ns == 0 { 0 } else { group.at(at_ns) };
        let found = other.send_time(0, sent_ns, from_ns, to_ns);
        assert_eq!(found != SendTime::Implausible, is_plausible, "{at_ns}: {found:?}");
    }
    assert_eq!(other.send_time(0, u64::MAX, from_ns, to_ns), SendTime::Implausible);
}

#[test]
fn contradictory_answers_leave_the_clock_unknown() {
    for absurd in [|_| 0, |now_ns: u64| now_ns * 2] {
        let mut clocks = Clocks::new(8);
        clocks.join(7, 0, true, 5);
        let mut now_ns = 1_000_000_000;
        for _ in 0..100 {
            now_ns += 20_000_000;
            while let Some(probe) = clocks.next_probe(now_ns) {
                clocks.handle_answer(probe.number, absurd(now_ns), absurd(now_ns), now_ns + 30_000);
            }
        }
        assert_eq!(clocks.send_time(0, now_ns, now_ns, now_ns), SendTime::Unknown);
        let report = &clocks.report((1_000_000_000, now_ns))[0];
        assert!(report.contradictory && !report.same_kernel && report.probes > 60, "{report:?}");
        assert_eq!((report.offset_ns, report.bound_ns, report.violations), (None, None, None));
    }
}

#[test]
fn probes_of_groups_that_joined_together_are_sent_apart() {
    let mut clocks = Clocks::new(8);
    for id in 0..8 {
        clocks.join(id, 0, false, 0);
    }
    let mut sent = Vec::new();
    let mut now_ns = 0;
    while now_ns < INITIAL_NS {
        sent.extend(clocks.next_probe(now_ns).map(|probe| (now_ns, probe.group)));
        now_ns = clocks.next_due_ns().unwrap().max(now_ns + 1);
    }
    let times: Vec<u64> = sent.iter().map(|(at_ns, _)| *at_ns).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= APART_NS), "{times:?}");
    let groups: Vec<u32> = sent.iter().map(|(_, group)| *group).collect();
    assert_eq!(groups, (0..8).collect::<Vec<_>>());
}
