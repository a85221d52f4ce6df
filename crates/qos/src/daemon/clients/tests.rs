use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qos_client::{Client as Program, Error, Report, Statement as Stated};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
const POLICY: &str = "[bottleneck]\ninterface = 'lo'\ncapacity = '50Mbit/s'\n\
    [[class]]\nname = 'alarm'\nmatch = { process = 'a' }\npriority = 1\ntarget = '500ms'\njoin = true\n\
    [[class]]\nname = 'closed'\nmatch = { process = 'b' }\npriority = 1\ntarget = '500ms'\n";

/// Serves `clients` until `programs`, in a thread of their own, have said everything.
fn talk<T: Send>(clients: &mut Clients, programs: impl FnOnce() -> T + Send) -> T {
    let policy = Policy::parse(POLICY).unwrap();
    let discovery = Discovery::open(&policy.bottleneck, Vec::new()).unwrap();
    let messages = Messages::new(&policy);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(programs));
            is_over.store(true, Ordering::Release);
            said.unwrap()
        });
        while !is_over.load(Ordering::Acquire) {
            let seen = TickView { policy: &policy, discovery: &discovery, found: &[], messages: &messages };
            clients.serve(&seen);
            std::thread::sleep(Duration::from_millis(1));
        }
        thread.join().unwrap()
    })
}

fn listening(folder: &Path) -> Clients {
    let journal = Journal::open(&folder.join("journal")).unwrap();
    let namespace = NamespaceId::of_this_thread().unwrap().inode();
    Clients::new(Some(SeqPacketListener::bind(&journal, &folder.join(format!("{namespace}-lo"))).unwrap()))
}

fn alarm(class: &str) -> Stated<'_> {
    Stated { class, size_bytes: Some(1000), target: Some(Duration::from_millis(100)) }
}

#[test]
fn statement_is_answered_and_ends_with_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut clients = listening(folder.path());
    let (program, stated, refused) = talk(&mut clients, || {
        let mut program = Program::with(folder.path(), PATIENCE);
        let refused = [program.state(&alarm("closed")), program.state(&alarm("nowhere"))];
        let stated = program.state(&alarm("alarm"));
        (program, stated, refused)
    });
    assert_eq!(refused, [Err(Error::NotPermitted), Err(Error::UnknownClass)]);
    let Report { class, sockets, size_bytes, target, .. } = stated.unwrap();
    assert_eq!((class.as_str(), sockets, size_bytes), ("alarm", 0, Some(1000)));
    assert_eq!(target, Some(Duration::from_millis(100)));
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(clients.joined().get(&own).map(|joined| joined.class), Some(0));
    assert!(clients.needs.is_empty(), "without a socket it needs nothing");
    drop(program);
    talk(&mut clients, || std::thread::sleep(Duration::from_millis(20)));
    assert!(clients.joined().is_empty() && clients.clients.is_empty());
}

#[test]
fn policy_that_comes_again_hears_the_statement_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::with(folder.path(), PATIENCE);
    assert_eq!(program.state(&alarm("alarm")), Err(Error::NoPolicy));
    for _ in 0..2 {
        let mut clients = listening(folder.path());
        let report = talk(&mut clients, || program.rate()).unwrap();
        assert_eq!((report.class.as_str(), report.size_bytes), ("alarm", Some(1000)));
    }
    assert_eq!(program.rate(), Err(Error::NoPolicy));
}

#[test]
fn program_waits_no_longer_than_its_deadline_for_a_policy_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let _clients = listening(folder.path());
    let mut program = Program::with(folder.path(), Duration::from_millis(20));
    assert_eq!(program.state(&alarm("alarm")), Err(Error::Late));
    assert_eq!(Program::with(folder.path(), Duration::ZERO).rate(), Err(Error::Late));
    // Until the backlog is full, and beyond.
    let mut many: Vec<Program> =
        (0..200).map(|_| Program::with(folder.path(), Duration::from_millis(1))).collect();
    assert!(many.iter_mut().all(|program| program.rate() == Err(Error::Late)));
}

#[test]
fn one_user_has_a_bounded_number_of_connections() {
    let folder = tempfile::tempdir().unwrap();
    let mut clients = listening(folder.path());
    let served = talk(&mut clients, || {
        let mut many: Vec<Program> = (0..80).map(|_| Program::with(folder.path(), PATIENCE)).collect();
        many.iter_mut().map(Program::rate).filter(Result::is_ok).count()
    });
    assert_eq!(served, CLIENTS_OF_USER_MAX);
}
