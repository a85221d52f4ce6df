//! Deletes the objects below a prefix of kagiri's own.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use super::address::Address;
use super::client::{Access, Client};
use super::failure::Failure;
use super::keys;
use super::listing::{LISTING, Listing};

/// Deleting ends when it has made no progress for this time.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time of listing and deleting together; the next attempt continues.
const WHOLE: Duration = Duration::from_secs(1800);
/// Longest time of one request.
const REQUEST: Duration = Duration::from_secs(10);

/// What was done below a prefix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub deleted: u64,
    /// Keys that kagiri did not make, and left alone.
    pub foreign: u64,
}

/// How to get rid of what is left, in words.
#[must_use]
pub fn how_to_remove(own: &Address) -> String {
    format!(
        "objects are left below {own}/; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and \
         AWS_ENDPOINT_URL) and run 'kagiri undo', or delete them: aws s3 rm --recursive {own}/"
    )
}

/// Deletes what a crashed process left, with the credentials of the environment, until `stop` is raised.
///
/// # Errors
/// What is left, why, and how to remove it.
pub fn remove_leftover(own: &Address, endpoint: Option<&str>, stop: &AtomicBool) -> Result<Removed, String> {
    // The user has agreed to this endpoint when the objects were made.
    let access = Access {
        endpoint: endpoint.map(str::to_owned),
        keys: None,
        allows_http: true,
        within: REQUEST,
        connections: 32,
    };
    let client = Client::connect(&own.bucket, &access);
    let removed = client.and_then(|client| remove(&client, own, stop));
    removed.map_err(|why| format!("{why}; {}", how_to_remove(own)))
}

/// Deletes all objects of ours below an own prefix, and nothing else, until `stop` is raised.
///
/// # Errors
/// Why some are left.
pub fn remove(client: &Client, own: &Address, stop: &AtomicBool) -> Result<Removed, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    runtime.block_on(remove_all(client, own, stop)).map_err(|why| match why {
        Some(failure) => failure.sentence(&own.to_string()),
        None => format!("{own}: interrupted"),
    })
}

async fn remove_all(client: &Client, own: &Address, stop: &AtomicBool) -> Result<Removed, Option<Failure>> {
    let mut removed = Removed::default();
    let began = Instant::now();
    let mut until = began + PATIENCE;
    // A pass deletes every page; it is repeated until one finds nothing of ours.
    'passes: loop {
        let (mut ours_found, mut foreign) = (0, 0);
        let mut first_failure: Option<Failure> = None;
        let mut listing = Listing::new(client, format!("{}/", own.prefix), LISTING, stop);
        loop {
            let page = match listing.page().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(Some(failure)) if !failure.is_final && Instant::now() <= until => {
                    tokio::time::sleep(PAUSE).await;
                    continue 'passes;
                }
                Err(why) => return Err(why),
            };
            let (ours, others): (Vec<_>, Vec<_>) =
                page.into_iter().map(|(key, _)| key).partition(|key| keys::number(own, key).is_some());
            foreign += others.len() as u64;
            ours_found += ours.len();
            let asked = ours.len();
            let failures = client.delete_all(ours).await;
            let deleted = asked - failures.len();
            if deleted > 0 {
                removed.deleted += deleted as u64;
                until = Instant::now() + PATIENCE;
            }
            // A server can invent keys of ours without end.
            if began.elapsed() > WHOLE {
                return Err(Some(Failure::endless_listing(WHOLE.as_secs_f64())));
            }
            first_failure = first_failure.or_else(|| failures.into_iter().next());
        }
        removed.foreign = foreign;
        match first_failure {
            None if ours_found == 0 => return Ok(removed),
            None => {}
            Some(failure) if failure.is_final || Instant::now() > until => return Err(Some(failure)),
            Some(_) => tokio::time::sleep(PAUSE).await,
        }
        if Instant::now() > until {
            return Err(Some(Failure::timed_out(PATIENCE.as_secs_f64())));
        }
    }
}
