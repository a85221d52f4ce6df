//! A whole listing, page by page. It ends whatever the server answers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::client::Client;
use super::failure::Failure;

/// The most that the answers of one listing may take together.
pub(in crate::objects) const LISTING: Duration = Duration::from_secs(60);
const PAGE_KEYS: usize = 1000;
/// It is looked at least so often whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The pages of a listing, one after the other.
pub(in crate::objects) struct Listing<'a> {
    client: &'a Client,
    prefix: String,
    stop: &'a AtomicBool,
    /// What is left of the time for all answers, and how much it was.
    left: Duration,
    whole: Duration,
    /// Tokens that the server has given.
    seen: HashSet<String>,
    next: Option<String>,
    is_done: bool,
}

impl<'a> Listing<'a> {
    /// Lists the keys that begin with `prefix`, until `stop` is raised.
    pub(in crate::objects) fn new(
        client: &'a Client,
        prefix: String,
        whole: Duration,
        stop: &'a AtomicBool,
    ) -> Self {
        let seen = HashSet::new();
        Self { client, prefix, stop, left: whole, whole, seen, next: None, is_done: false }
    }

    /// The keys of the next page with their sizes; `None` after the last. A page that failed can be asked for
    /// again.
    ///
    /// # Errors
    /// The request failed, the server repeats itself, or the time is over. `None`: it was stopped.
    pub(in crate::objects) async fn page(&mut self) -> Result<Option<Vec<(String, u64)>>, Option<Failure>> {
        if self.is_done {
            return Ok(None);
        }
        let began = Instant::now();
        let request = self.client.list(&self.prefix, PAGE_KEYS, self.next.clone());
        let answer = unless_stopped(self.stop, tokio::time::timeout(self.left, request)).await.ok_or(None)?;
        self.left = self.left.saturating_sub(began.elapsed());
        let late = || Some(Failure::endless_listing(self.whole.as_secs_f64()));
        let page = answer.map_err(|_| late())?.map_err(Some)?;
        if let Some(token) = &page.next
            && !self.seen.insert(token.clone())
        {
            return Err(Some(Failure::repeated_page()));
        }
        self.is_done = page.next.is_none();
        self.next = page.next;
        Ok(Some(page.objects))
    }
}

/// What comes of `work`; `None` if `stop` is raised before it ends.
async fn unless_stopped<T>(stop: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    let stopped = async {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        biased;
        () = stopped => None,
        done = work => Some(done),
    }
}

#[cfg(test)]
mod tests {
    use s3_server::{Config, Faults, Server};

    use super::*;
    use crate::objects::access::client::{Access, Keys};

    #[test]
    fn all_answers_share_one_deadline() {
        let faults = Faults { latency: Duration::from_millis(150), ..Faults::default() };
        let server = Server::start(Config { faults, ..Config::default() }).unwrap();
        for number in 0..3500 {
            server.put("test", &format!("a/{number:04}"), b"x").unwrap();
        }
        let config = server.config();
        let access = Access {
            endpoint: Some(server.endpoint()),
            keys: Some(Keys::new(&config.access_key, &config.secret_key)),
            allows_http: false,
            within: Duration::from_secs(60),
            connections: 1,
        };
        let client = Client::connect("test", &access).unwrap();
        let never = AtomicBool::new(false);
        let list = async |whole| {
            let mut listing = Listing::new(&client, "a/".to_owned(), whole, &never);
            let mut keys = 0;
            while let Some(page) = listing.page().await? {
                keys += page.len();
            }
            Ok::<_, Option<Failure>>(keys)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(list(Duration::from_secs(60))), Ok(3500));
        // Each of the four answers has less time than this, all together have more.
        let why = runtime.block_on(list(Duration::from_millis(400))).unwrap_err().expect("a failure");
        assert_eq!(why.kind, "the listing was not complete within 0.4 s");
    }
}
