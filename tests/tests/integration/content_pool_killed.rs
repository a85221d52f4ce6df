//! A content server that is killed while clients upload into its pool.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kagiri_tests::{World, beside_others};
use nix::sys::signal::Signal;
use pool::Pool;

use crate::content_pool::serve;

const PATIENCE: Duration = Duration::from_secs(30);
const KILLS: u64 = 25;
const CLIENTS: u64 = 4;
const NAMES: u64 = 6;
const SEGMENT: u64 = 64 << 10;

/// What is served under a name; `None`: nothing.
type Content = Option<Vec<u8>>;

/// What a client knows of its names.
#[derive(Default)]
struct Known {
    /// By the last answer.
    answered: BTreeMap<String, Content>,
    /// What a request without an answer wanted: it happened, or it did not.
    unanswered: Option<(String, Content)>,
    answers: u64,
}

/// A generator of pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
    }

    fn content(&mut self) -> Vec<u8> {
        let len = [0, 1 + self.below(1000), self.below(10 * SEGMENT), 3 * SEGMENT][self.below(4) as usize];
        let seed = self.below(1 << 32);
        (0..len)
            .map(|at| (seed.wrapping_add(at >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8)
            .collect()
    }
}

/// Status and content of the next answer; `None`: the server is gone.
fn answer(stream: &mut TcpStream) -> Option<(u16, Vec<u8>)> {
    let (mut received, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        if let Some(end) = received.windows(4).position(|part| part == b"\r\n\r\n").map(|at| at + 4) {
            let head = String::from_utf8_lossy(&received[..end]).into_owned();
            let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let len: usize = len.map_or(0, |len| len.parse().expect("a length"));
            if received.len() >= end + len {
                assert_eq!(received.len(), end + len, "one answer to one request");
                return Some((head[9..12].parse().expect("a status"), received[end..].to_vec()));
            }
        }
        match stream.read(&mut piece) {
            Ok(n @ 1..) => received.extend_from_slice(&piece[..n]),
            _ => return None,
        }
    }
}

fn connect(address: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    Some(stream)
}

fn request(method: &str, name: &str, len: usize) -> String {
    format!("{method} /{name} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n")
}

impl Known {
    /// Uploads and deletes until the server is gone.
    fn work(&mut self, address: &str, random: &mut Random, moved: &AtomicU64) {
        let Some(mut stream) = connect(address) else { return };
        let names: Vec<_> = self.answered.keys().cloned().collect();
        loop {
            let name = names[random.below(names.len() as u64) as usize].clone();
            if random.below(10) == 0 {
                // A client that vanishes within its upload.
                let Some(mut other) = connect(address) else { return };
                let head = request("PUT", &name, 500_000);
                let _ = other.write_all(head.as_bytes()).and_then(|()| other.write_all(&vec![1; 200_000]));
                continue;
            }
            let content = (random.below(5) > 0).then(|| random.content());
            let method = if content.is_some() { "PUT" } else { "DELETE" };
            let body = content.as_deref().unwrap_or_default();
            let head = request(method, &name, body.len());
            let existed = self.answered[&name].is_some();
            self.unanswered = Some((name.clone(), content.clone()));
            let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            let Some((status, _)) = sent.ok().and_then(|()| answer(&mut stream)) else { return };
            let due = match (method, existed) {
                ("PUT", false) => 201,
                ("DELETE", false) => 404,
                _ => 204,
            };
            assert_eq!(status, due, "{method} {name}");
            self.unanswered = None;
            self.answered.insert(name, content);
            self.answers += 1;
            moved.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares with what is served, and takes over what became of the request without an answer.
    fn check(&mut self, address: &str) {
        let mut stream = connect(address).expect("a server");
        for (name, content) in &mut self.answered {
            stream.write_all(request("GET", name, 0).as_bytes()).expect("the server reads");
            let served = match answer(&mut stream).expect("an answer") {
                (200, served) => Some(served),
                (404, _) => None,
                (status, _) => panic!("{name}: {status}"),
            };
            let wanted =
                self.unanswered.as_ref().filter(|(other, _)| other == name).map(|(_, wanted)| wanted);
            let len = |content: &Content| content.as_ref().map(Vec::len);
            assert!(
                served == *content || wanted == Some(&served),
                "{name}: served {:?}, answered {:?}, wanted {:?}",
                len(&served),
                len(content),
                wanted.map(len)
            );
            *content = served;
        }
        self.unanswered = None;
    }
}

/// Each segment is free or one file's; returns how many files there are.
fn check_segments(folder: &Path) -> usize {
    let pool = Pool::open(folder).expect("a whole pool");
    let files = pool.list();
    let mut used: Vec<_> = files.iter().flat_map(|(_, file)| file.segments().map(|(at, _)| at)).collect();
    let count = used.len() as u64;
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len() as u64, count, "a segment is in two files");
    assert_eq!(count * SEGMENT + pool.free_bytes(), pool.total_bytes(), "a segment is lost");
    files.len()
}

#[test]
fn answered_uploads_survive_kills_of_the_server() {
    let _beside = beside_others();
    let world = World::new();
    let films = world.path("films");
    std::fs::create_dir(&films).unwrap();
    let folder = films.join(pool::FOLDER);
    drop(Pool::create(&folder, 512 * SEGMENT, SEGMENT).unwrap());
    let mut clients: Vec<_> = (0..CLIENTS).map(|client| (Known::default(), Random(client + 1))).collect();
    for (client, (known, _)) in clients.iter_mut().enumerate() {
        known.answered = (0..NAMES).map(|name| (format!("c{client}-{name}"), None)).collect();
    }
    let mut moments = Random(KILLS);
    let mut unanswered = 0;
    for kill in 0..KILLS {
        // Plain files of the same names, which uploads replace.
        for (known, random) in &mut clients {
            let free: Vec<_> = known.answered.iter_mut().filter(|(_, content)| content.is_none()).collect();
            for (name, content) in free.into_iter().take(2) {
                let plain = random.content();
                std::fs::write(films.join(name), &plain).unwrap();
                *content = Some(plain);
            }
        }
        let (live, address) = serve(&world, &["--upload", "--pool", "32MiB", "--threads", "2"]);
        clients.iter_mut().for_each(|(known, _)| known.check(&address));
        let moved = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (known, random) in &mut clients {
                let (address, moved) = (&address, &moved);
                scope.spawn(move || known.work(address, random, moved));
            }
            // At least one request has an answer, and the moment of the kill is any.
            kagiri_tests::wait_until("an answer", PATIENCE, || moved.load(Ordering::Relaxed) > 0);
            std::thread::sleep(Duration::from_micros(moments.below(300_000)));
            live.signal(Signal::SIGKILL);
        });
        live.end(PATIENCE);
        unanswered += clients.iter().filter(|(known, _)| known.unanswered.is_some()).count();
        let files = check_segments(&folder);
        assert!(files <= (CLIENTS * NAMES) as usize, "kill {kill}: {files} files");
    }
    let (live, address) = serve(&world, &["--upload"]);
    clients.iter_mut().for_each(|(known, _)| known.check(&address));
    drop(live);
    check_segments(&folder);
    let answers: u64 = clients.iter().map(|(known, _)| known.answers).sum();
    println!("{answers} answers, {unanswered} requests without one");
    assert!(unanswered > 0, "no kill came within a request");
}
