//! The trend rule: no healthy buffer is taken for a draining one, and a drain is seen long before it stalls.

use crate::common;
use common::{MS, vbr_timeline};
use stream::report::buffer_trend::{TrendContext, judge};
use stream::viewer::player::{BufferRules, Player, State};

/// What a simulated hold gave.
struct Hold {
    points: Vec<(f64, f64)>,
    stalls: u64,
    supply: f64,
}

/// `n` players of one content at a server that sends `capacity` times the mean rate of one stream in all,
/// sharing evenly among those that want more, every 40 ms; `jitter` is the share by which each 40 ms vary.
/// Sockets hold another 0.3 s for each player, as they do in earnest.
fn hold(n: usize, capacity: f64, jitter: f64, hold_s: u64, seed: u64) -> Hold {
    let timeline = vbr_timeline(400, 0.3, seed);
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
    let mut players: Vec<_> = (0..n)
        .map(|i| {
            let mut player =
                Player::new(BufferRules::default(), &timeline, (i * 400 / n + random.usize(0..400)) % 400);
            player.opened();
            player
        })
        .collect();
    let tick_bytes = capacity * timeline.mean_bit_per_s() / 8.0 * 0.04;
    let (warm_ticks, ticks) = (150_u64, 151 + hold_s * 25);
    let (mut points, mut second) = (Vec::new(), vec![f64::MAX; n]);
    let (mut stalls_before, mut received_before) = (0, 0);
    // What the sockets hold, bytes a player.
    let mut queued = vec![0_u64; n];
    for tick in 0..ticks {
        let now = tick * 40 * MS;
        share_out(&mut queued, tick_bytes * (1.0 + jitter * (random.f64() * 2.0 - 1.0)));
        for (i, player) in players.iter_mut().enumerate() {
            let got = player.wanted_bytes(&timeline, now).min(queued[i]);
            queued[i] -= got;
            player.advance(&timeline, now, player.received_bytes() + got);
            second[i] = second[i].min(player.slack_ns().unwrap_or(0) as f64 / 1e9);
        }
        if tick == warm_ticks {
            stalls_before = players.iter().map(Player::stall_count).sum();
            received_before = players.iter().map(Player::received_bytes).sum();
            second.fill(f64::MAX);
        }
        if tick > warm_ticks && (tick - warm_ticks).is_multiple_of(25) {
            let at = ((tick - warm_ticks) / 25) as f64 - 0.5;
            points.push((at, second.iter().sum::<f64>() / n as f64));
            second.fill(f64::MAX);
        }
    }
    let received: u64 = players.iter().map(Player::received_bytes).sum::<u64>() - received_before;
    assert!(players.iter().all(|player| player.state() != State::Buffering));
    Hold {
        points,
        stalls: players.iter().map(Player::stall_count).sum::<u64>() - stalls_before,
        supply: received as f64 * 8.0 / (hold_s as f64 * n as f64 * timeline.mean_bit_per_s()),
    }
}

/// Fill sockets evenly up to 0.3 s of content each.
fn share_out(queued: &mut [u64], bytes: f64) {
    const SOCKET_BYTES: u64 = 937_500;
    let mut left = bytes as u64;
    loop {
        let open = queued.iter().filter(|&&q| q < SOCKET_BYTES).count() as u64;
        let each = left / open.max(1);
        if open == 0 || each == 0 {
            return;
        }
        for q in queued.iter_mut().filter(|q| **q < SOCKET_BYTES) {
            let room = each.min(SOCKET_BYTES - *q);
            *q += room;
            left -= room;
        }
    }
}

fn drains(hold: &Hold, remaining_s: f64) -> bool {
    let context = TrendContext { remaining_s, supply: Some(hold.supply) };
    judge(&hold.points, context).is_some_and(|trend| trend.drains)
}

#[test]
fn healthy_servers_never_drain() {
    let mut dips = 0;
    for seed in 0..600 {
        for (n, spare, jitter) in
            [(1, 2.0, 0.1), (4, 1.1, 0.3), (5, 1.3, 0.5), (8, 1.05, 0.1), (16, 1.03, 0.3)]
        {
            let hold_s = [5, 10, 20][(seed % 3) as usize];
            let hold = hold(n, n as f64 * spare, jitter, hold_s, seed);
            dips += u32::from(hold.points.iter().any(|(_, slack)| *slack < 1.5));
            assert!(!drains(&hold, 100.0), "seed {seed}: {n} streams at {spare}: {:?}", hold.points);
        }
    }
    assert!(dips > 20, "the rule was tried on holds with rich scenes too: {dips}");
}

#[test]
fn overload_drains_or_stalls() {
    for (n, capacity, hold_s, least) in
        [(5, 4.0, 5, 0.95), (5, 4.5, 10, 0.9), (6, 5.4, 10, 0.85), (20, 19.0, 10, 0.7), (100, 97.0, 10, 0.9)]
    {
        let seen = (0..100).filter(|&seed| {
            let hold = hold(n, capacity, 0.2, hold_s, seed);
            hold.stalls > 0 || drains(&hold, 600.0)
        });
        let share = seen.count() as f64 / 100.0;
        assert!(share >= least, "{n} streams at a server for {capacity}: {share} of the holds failed");
    }
}

#[test]
fn trend_rule_on_straight_lines() {
    let line = |start: f64, slope: f64, n: usize, noise: f64| -> Vec<(f64, f64)> {
        let mut random = fastrand::Rng::with_seed(9);
        (0..n).map(|i| (i as f64 + 0.5, start + slope * i as f64 + noise * (random.f64() - 0.5))).collect()
    };
    let known = TrendContext { remaining_s: 600.0, supply: Some(0.9) };
    for (name, points, context, drains) in [
        ("level", line(1.96, 0.0, 10, 0.04), known, false),
        ("1 % drain", line(1.96, -0.01, 20, 0.02), known, true),
        ("5 % drain", line(1.96, -0.05, 10, 0.04), known, true),
        ("20 % drain", line(1.96, -0.2, 6, 0.04), known, true),
        (
            "20 % drain of a rich scene",
            line(1.96, -0.2, 6, 0.04),
            TrendContext { supply: Some(1.1), ..known },
            false,
        ),
        (
            "20 % drain, supply unknown",
            line(1.96, -0.2, 6, 0.04),
            TrendContext { supply: None, ..known },
            true,
        ),
        (
            "1 % drain, timeline over before",
            line(1.96, -0.01, 20, 0.02),
            TrendContext { remaining_s: 30.0, ..known },
            false,
        ),
        ("rising", line(0.5, 0.1, 10, 0.04), known, false),
        ("a frame's worth", line(1.96, -0.004, 10, 0.0), known, false),
        ("too few points", line(1.96, -0.2, 4, 0.0), known, false),
    ] {
        let trend = judge(&points, context).unwrap();
        assert_eq!(trend.drains, drains, "{name}: {trend:?}");
    }
    assert_eq!(judge(&[], known), None);
    assert_eq!(judge(&[(0.5, 2.0)], known), None);
}
