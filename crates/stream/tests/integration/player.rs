//! The player's state machine and the rule on its throughput: tables of cases, and what must hold for all of
//! them.

use crate::common;
use common::{MS, S, cbr_timeline, vbr_timeline};
use proptest::prelude::*;
use stream::viewer::player::{BufferRules, Player, State};
use stream::viewer::throughput_check::ThroughputCheck;

/// A player that has been answered.
fn opened(timeline: &stream::content::timeline::Timeline, gop: usize) -> Player {
    let mut player = Player::new(BufferRules::default(), timeline, gop);
    player.opened();
    player
}

#[test]
fn play_starts_at_start_buffer_and_shows_frames_when_due() {
    let timeline = cbr_timeline(20);
    let mut player = Player::new(BufferRules::default(), &timeline, 0);
    assert_eq!((player.state(), player.wanted_bytes(&timeline, 0)), (State::Header, 0));
    player.opened();
    // Up to 2 s ahead: frames 0 to 20.
    assert_eq!(player.wanted_bytes(&timeline, 0), 21_000);
    for (at_ms, received, state, frames, slack_ms) in [
        (100, 0, State::Buffering, 0, None),
        (200, 9_999, State::Buffering, 0, None),
        // Frame 10, due after 1 s, is the first that is missing.
        (300, 10_000, State::Playing, 1, Some(1000)),
        (390, 10_000, State::Playing, 1, Some(910)),
        (400, 15_500, State::Playing, 2, Some(1400)),
        (1299, 15_500, State::Playing, 10, Some(501)),
    ] {
        player.advance(&timeline, at_ms * MS, received);
        let seen = (player.state(), player.frames_played(), player.slack_ns().map(|ns| ns / MS));
        assert_eq!(seen, (state, frames, slack_ms), "at {at_ms} ms");
    }
    assert_eq!(player.started_ns(), Some(300 * MS));
    // 999 ms of content, 2 s ahead: frames 0 to 29, and 99/100 of frame 30 less what is there.
    assert_eq!(player.wanted_bytes(&timeline, 1299 * MS), 30_990 - 15_500);
}

#[test]
fn missing_byte_stalls_until_resume_buffer() {
    let timeline = cbr_timeline(20);
    let mut player = opened(&timeline, 0);
    player.advance(&timeline, 0, 11_999);
    // Frames 0 to 10 are there, frame 11 lacks a byte and is due at 1.1 s; it is noticed 30 ms later.
    player.advance(&timeline, 1130 * MS, 11_999);
    assert_eq!((player.state(), player.frames_played(), player.slack_ns()), (State::Stalled, 11, Some(0)));
    let stall = player.stalls()[0];
    assert_eq!((stall.began_ns, stall.ended_ns, stall.frame), (1100 * MS, None, 11));
    // The byte comes, but not yet half a second: frames 11 to 15.
    player.advance(&timeline, 1300 * MS, 15_999);
    assert_eq!((player.state(), player.stalled_ns(1300 * MS)), (State::Stalled, 200 * MS));
    assert_eq!(
        player.wanted_bytes(&timeline, 1300 * MS),
        32_000 - 15_999,
        "the cap counts from the still picture"
    );
    player.advance(&timeline, 1500 * MS, 16_000);
    assert_eq!((player.state(), player.frames_played()), (State::Playing, 12));
    assert_eq!(player.stalls()[0].ended_ns, Some(1500 * MS));
    // The content goes on where it stood: frame 12 is due 100 ms later.
    player.advance(&timeline, 1599 * MS, 30_000);
    assert_eq!(player.frames_played(), 12);
    player.advance(&timeline, 1600 * MS, 30_000);
    assert_eq!((player.frames_played(), player.stalled_ns(9 * S)), (13, 400 * MS));
}

#[test]
fn late_caller_makes_no_stall() {
    let timeline = cbr_timeline(20);
    let mut player = opened(&timeline, 0);
    player.advance(&timeline, 0, 10_000);
    player.advance(&timeline, 5 * S, 60_000);
    assert_eq!((player.state(), player.stall_count(), player.frames_played()), (State::Playing, 0, 51));
}

#[test]
fn content_repeats_at_its_end() {
    let timeline = cbr_timeline(3);
    let mut player = opened(&timeline, 2);
    for tick in 0..=100 {
        let now = tick * 40 * MS;
        let wanted = player.wanted_bytes(&timeline, now);
        let received = player.received_bytes() + wanted;
        player.advance(&timeline, now, received);
    }
    // Four seconds over a content of three, begun in its last second.
    assert_eq!((player.frames_played(), player.stall_count()), (41, 0));
    assert_eq!(player.received_bytes(), 61_000);
}

#[test]
fn ended_player_does_not_advance() {
    let timeline = cbr_timeline(3);
    let mut player = opened(&timeline, 0);
    player.advance(&timeline, 0, 10_000);
    player.advance(&timeline, 2 * S, 10_000);
    player.end(3 * S);
    assert_eq!((player.state(), player.slack_ns(), player.stalled_ns(9 * S)), (State::Ended, None, 2 * S));
    player.advance(&timeline, 5 * S, 30_000);
    assert_eq!((player.frames_played(), player.wanted_bytes(&timeline, 5 * S)), (10, 0));
}

#[test]
fn throughput_ratio_of_variable_rate_stays_at_one() {
    let timeline = vbr_timeline(200, 0.3, 7);
    let (mut player, mut throughput) = (opened(&timeline, 3), ThroughputCheck::default());
    let (mut ratios, mut raw) = (Vec::new(), Vec::new());
    let mut before = 0;
    for tick in 0..2000_u64 {
        let now = tick * 40 * MS;
        let wanted = player.wanted_bytes(&timeline, now);
        let received = player.received_bytes() + wanted;
        player.advance(&timeline, now, received);
        if tick > 100 && tick.is_multiple_of(125) {
            ratios.extend(throughput.next_window(&player, &timeline, true));
            raw.push(received - before);
            before = received;
        }
    }
    assert!(ratios.len() > 10 && ratios.iter().all(|r| !r.is_disturbed(0.01)), "{ratios:?}");
    let mean = raw[1..].iter().sum::<u64>() as f64 / (raw.len() - 1) as f64;
    assert!(raw[1..].iter().any(|&b| (b as f64 / mean - 1.0).abs() > 0.1), "{raw:?}");
}

#[test]
fn low_throughput_is_disturbed_and_filling_is_not() {
    for (share, disturbed) in [(0.90, true), (0.97, false), (1.0, false), (1.2, false)] {
        let timeline = cbr_timeline(60);
        let (mut player, mut throughput) = (opened(&timeline, 0), ThroughputCheck::default());
        player.advance(&timeline, 0, 15_000);
        let mut received = 15_000.0;
        for tick in 1..=250_u64 {
            if tick.is_multiple_of(125) || tick == 1 {
                throughput.next_window(&player, &timeline, false);
            }
            received += 400.0 * share;
            player.advance(&timeline, tick * 40 * MS, received as u64);
        }
        let worst = throughput.worst().unwrap();
        assert_eq!(worst.is_disturbed(0.05), disturbed, "{share}: {worst:?}");
        assert!((worst.value - share).abs() < 0.01, "{share}: {worst:?}");
    }
}

#[test]
fn gap_counts_only_while_bytes_are_wanted() {
    let mut throughput = ThroughputCheck::default();
    for (at_ms, wanted, got) in
        [(0, 100, 10), (40, 100, 0), (80, 0, 0), (300, 50, 0), (500, 50, 0), (540, 9, 9)]
    {
        throughput.record_read(at_ms * MS, wanted, got);
    }
    assert_eq!(throughput.gap_max_ns(), 420 * MS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn player_invariants_hold_for_any_arrivals(
        seed in any::<u64>(),
        gop in 0_usize..20,
        steps in prop::collection::vec((0_u64..400, 0_u64..400_000), 1..400),
    ) {
        let timeline = vbr_timeline(20, 0.3, seed);
        let mut player = opened(&timeline, gop);
        let (mut now, mut received) = (0, 0);
        for (step_ms, bytes) in steps {
            now += step_ms * MS;
            let wanted = player.wanted_bytes(&timeline, now);
            received += bytes.min(wanted);
            player.advance(&timeline, now, received);
            let Some(started) = player.started_ns() else { continue };
            // The content has moved or stood still, nothing else.
            prop_assert_eq!(player.position_ns() + player.stalled_ns(now), now - started);
            // All due frames and no others were shown; a frame is shown only when it is complete.
            let due = timeline.frames_until(gop, player.position_ns());
            let shown = player.frames_played();
            prop_assert_eq!(due, shown + u64::from(player.state() == State::Stalled));
            let before = player.position_ns().saturating_sub(40 * MS);
            prop_assert!(shown == 0 || timeline.bytes_until(gop, before) <= received);
            let closed: u64 = player.stalls().iter().filter_map(|s| Some(s.ended_ns? - s.began_ns)).sum();
            let open = player.stalls().iter().filter(|s| s.ended_ns.is_none()).count();
            prop_assert_eq!(open, usize::from(player.state() == State::Stalled));
            prop_assert!(closed <= player.stalled_ns(now));
            prop_assert_eq!(player.stalls().len() as u64, player.stall_count().min(256));
        }
    }

    #[test]
    fn player_never_buffers_more_than_the_cap(seed in any::<u64>(), gop in 0_usize..20) {
        let timeline = vbr_timeline(20, 0.3, seed);
        let mut player = opened(&timeline, gop);
        for tick in 0..500_u64 {
            let now = tick * 37 * MS;
            let received = player.received_bytes() + player.wanted_bytes(&timeline, now);
            player.advance(&timeline, now, received);
            prop_assert!(player.buffered_ns() <= 2 * S + MS);
            prop_assert_eq!(player.stall_count(), 0);
            prop_assert!(tick == 0 || player.buffered_ns() + MS >= 2 * S);
        }
    }
}
