//! Several hosts at one bottleneck, with a coordinator in the loop.

use qos::law::State;

use crate::coordination::Coordination;
use crate::simulator::{Record, Simulator};
use crate::{MESSAGE_BYTES, PAYLOAD, TARGET_S, URGENT_BIT_PER_S, bulk_share};

const HOSTS: usize = 3;
const BULK: usize = 4;

/// Urgent flows are on the first host.
fn scene(delay_us: u64) -> Simulator {
    let mut simulator = Simulator::new(HOSTS, BULK, TARGET_S, MESSAGE_BYTES, 256 << 10);
    simulator.hosts.iter_mut().for_each(|host| host.law.set_beside_others());
    simulator.coordination = Some(Coordination::new(HOSTS, delay_us));
    simulator
}

/// Bulk of a host, as a share of what urgent messages leave of the link.
fn share(simulator: &Simulator, host: usize, from_s: f64, to_s: f64) -> f64 {
    let is_in = |record: &&Record| record.host == host && (from_s..to_s).contains(&record.at_s);
    let records: Vec<&Record> = simulator.records.iter().filter(is_in).collect();
    bulk_share(&records, simulator.capacity_bit_per_s * PAYLOAD - URGENT_BIT_PER_S)
}

fn shares(simulator: &Simulator, from_s: f64, to_s: f64) -> Vec<f64> {
    (0..HOSTS).map(|host| share(simulator, host, from_s, to_s)).collect()
}

fn states(simulator: &Simulator, from_s: f64, to_s: f64) -> Vec<State> {
    let records = simulator.records.iter().filter(|record| (from_s..to_s).contains(&record.at_s));
    records.map(|record| record.control.state).collect()
}

/// Share of urgent messages in time.
fn in_time(simulator: &Simulator, from_s: f64, to_s: f64) -> f64 {
    let sent: Vec<f64> = simulator
        .responses
        .iter()
        .filter(|(sent, _)| (from_s..to_s).contains(sent))
        .map(|(_, s)| *s)
        .collect();
    sent.iter().filter(|s| **s <= TARGET_S).count() as f64 / sent.len() as f64
}

/// Largest of the smallest.
fn spread(shares: &[f64]) -> f64 {
    shares.iter().copied().fold(0.0, f64::max) / shares.iter().copied().fold(f64::INFINITY, f64::min)
}

fn least_bulk(simulator: &Simulator) -> f64 {
    simulator.records.iter().map(|record| record.control.applied_bit_per_s).fold(f64::INFINITY, f64::min)
}

/// Loops of 50 to 150 ms: two ways, and on average two halves of a step.
#[test]
fn coordinated_hosts_share_evenly_and_use_the_link() {
    for delay_us in [2_000, 25_000, 50_000] {
        let mut simulator = scene(delay_us);
        simulator.run_until(25.0);
        let shares = shares(&simulator, 8.0, 25.0);
        let in_time = in_time(&simulator, 8.0, 25.0);
        let place = format!("{delay_us} us: {shares:?}, in time {in_time}");
        assert!(states(&simulator, 2.0, 25.0).iter().all(|state| *state == State::Leased), "{place}");
        assert!(spread(&shares) < 1.1 && shares.iter().sum::<f64>() > 0.93, "{place}");
        assert!(in_time > 0.97, "{place}");
    }
}

#[test]
fn slower_link_is_followed_by_all_hosts() {
    for delay_us in [2_000, 25_000, 50_000] {
        let mut simulator = scene(delay_us);
        let mut from_s = 0.0;
        for link in [50e6, 20e6, 50e6] {
            simulator.capacity_bit_per_s = link;
            simulator.run_until(from_s + 12.0);
            let shares = shares(&simulator, from_s + 5.0, from_s + 12.0);
            let in_time = in_time(&simulator, from_s + 3.0, from_s + 12.0);
            let place = format!("{delay_us} us, {link} bit/s: {shares:?}, in time {in_time}");
            assert!(spread(&shares) < 1.1 && shares.iter().sum::<f64>() > 0.93, "{place}");
            assert!(in_time > 0.97, "{place}");
            from_s += 12.0;
        }
        assert!(least_bulk(&simulator) >= BULK as f64 * qos::SOCKET_RATE_MIN);
    }
}

#[test]
fn lost_coordinator_leaves_even_shares_and_its_successor_takes_over() {
    for link in [50e6, 20e6] {
        let mut simulator = scene(25_000);
        simulator.capacity_bit_per_s = link;
        simulator.run_until(10.0);
        simulator.coordination.as_mut().expect("a coordinator").is_running = false;
        simulator.run_until(30.0);
        // Half a second after the last report that was answered.
        let own = states(&simulator, 10.6, 30.0);
        assert!(own.iter().all(|state| *state != State::Leased));
        let alone = [shares(&simulator, 11.0, 20.0), shares(&simulator, 20.0, 30.0)];
        let in_time = in_time(&simulator, 11.0, 30.0);
        let place = format!("{link} bit/s: {alone:?}, in time {in_time}");
        assert!(alone.iter().all(|shares| spread(shares) < 1.5), "{place}");
        assert!(alone.iter().all(|shares| shares.iter().sum::<f64>() > 0.7), "{place}");
        assert!(in_time > 0.9, "{place}");
        simulator.coordination.as_mut().expect("a coordinator").restart();
        simulator.run_until(45.0);
        assert!(states(&simulator, 32.0, 45.0).iter().all(|state| *state == State::Leased));
        let led = shares(&simulator, 34.0, 45.0);
        assert!(spread(&led) < 1.1 && led.iter().sum::<f64>() > 0.9, "{link} bit/s: {led:?}");
        assert!(least_bulk(&simulator) >= BULK as f64 * qos::SOCKET_RATE_MIN);
    }
}

#[test]
fn share_of_a_silent_host_goes_to_the_others() {
    let mut simulator = scene(25_000);
    simulator.run_until(10.0);
    // The last host has nothing to send; it still reports.
    let flows = simulator.hosts[HOSTS - 1].flows.clone();
    simulator.silent = flows.clone();
    simulator.run_until(20.0);
    let others = shares(&simulator, 13.0, 20.0);
    assert!(others[0] + others[1] > 0.75 && spread(&others[..2]) < 1.1, "{others:?}");
    // It has crashed: no report comes. Then it is back.
    simulator.coordination.as_mut().expect("a coordinator").cut = vec![HOSTS - 1];
    simulator.run_until(25.0);
    assert!(share(&simulator, 0, 21.0, 25.0) > 0.37);
    simulator.coordination.as_mut().expect("a coordinator").cut.clear();
    simulator.silent = 0..0;
    simulator.run_until(35.0);
    let back = shares(&simulator, 28.0, 35.0);
    assert!(spread(&back) < 1.15 && back.iter().sum::<f64>() > 0.8, "{back:?}");
}

#[test]
fn host_that_is_cut_off_takes_its_part_and_not_more() {
    let mut simulator = scene(25_000);
    simulator.run_until(10.0);
    // It sends on its own beside the others, whose queue it fills.
    simulator.coordination.as_mut().expect("a coordinator").cut = vec![HOSTS - 1];
    simulator.run_until(30.0);
    let shares = shares(&simulator, 15.0, 30.0);
    assert!(shares.iter().all(|share| *share > 0.08) && shares.iter().sum::<f64>() > 0.7, "{shares:?}");
}
