//! Makes the objects of a run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use super::access::address::Address;
use super::access::client::Client;
use super::access::failure::Failure;
use super::access::keys;
use super::access::listing::{LISTING, Listing};
use super::content::{Slot, chunks};
use super::size::draw;

/// Requests under way at once.
const AT_ONCE: usize = 64;
/// An object is tried again for this time after failures that may pass.
const TRY_FOR: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Order<'a> {
    pub client: &'a Client,
    pub own: &'a Address,
    pub objects: u64,
    pub size: &'a wml::Number,
    pub content: &'a Bytes,
    pub seed: u64,
    pub stop: &'a AtomicBool,
}

/// What was made.
pub(super) struct Made {
    pub slots: Vec<Slot>,
    pub bytes: u64,
    /// Requests that were sent again.
    pub retries: u64,
}

/// Puts the objects that are not there; those of an earlier trial stay.
///
/// # Errors
/// Why an object cannot be made; `None`: it was stopped.
pub(super) async fn populate(order: Order<'_>) -> Result<Made, Option<Failure>> {
    let mut found = found(&order).await?;
    let slots = (0..order.objects).map(|number| Slot { number, size: found.remove(&number) });
    let mut slots: Vec<Slot> = slots.collect();
    let retries = AtomicU64::new(0);
    let (order, retries) = (&order, &retries);
    let puts = slots.iter_mut().filter(|slot| slot.size.is_none()).map(|slot| async move {
        let mut rng = fastrand::Rng::with_seed(order.seed ^ (slot.number << 20));
        let bytes = draw(order.size, &mut rng);
        put(order, slot.number, bytes, rng.usize(..order.content.len()), retries).await?;
        slot.size = Some(bytes);
        Ok(())
    });
    let mut puts = stream::iter(puts).buffer_unordered(AT_ONCE);
    let mut first = None;
    while let Some(put) = puts.next().await {
        if let Err(why) = put {
            first = Some(why);
            break;
        }
    }
    drop(puts);
    if let Some(why) = first {
        return Err(why);
    }
    let bytes = slots.iter().filter_map(|slot| slot.size).sum();
    Ok(Made { slots, bytes, retries: retries.load(Ordering::Relaxed) })
}

/// Numbers of the objects that are there, with their sizes.
async fn found(order: &Order<'_>) -> Result<BTreeMap<u64, u64>, Option<Failure>> {
    let mut all = BTreeMap::new();
    let prefix = format!("{}/", order.own.prefix);
    let mut listing = Listing::new(order.client, prefix, LISTING, order.stop);
    let until = Instant::now() + TRY_FOR;
    loop {
        match listing.page().await {
            Ok(Some(page)) => {
                let ours = |(key, size): (String, u64)| Some((keys::number(order.own, &key)?, size));
                let ours = page.into_iter().filter_map(ours);
                all.extend(ours.filter(|(number, _)| *number < order.objects));
            }
            Ok(None) => return Ok(all),
            Err(Some(failure)) if failure.is_passing && Instant::now() < until => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(why) => return Err(why),
        }
    }
}

async fn put(
    order: &Order<'_>,
    number: u64,
    bytes: u64,
    from: usize,
    retries: &AtomicU64,
) -> Result<(), Option<Failure>> {
    let until = Instant::now() + TRY_FOR;
    let key = keys::key(order.own, number);
    loop {
        if order.stop.load(Ordering::Relaxed) {
            return Err(None);
        }
        match order.client.put(&key, chunks(order.content, from, bytes)).await {
            Ok(()) => return Ok(()),
            Err(failure) if failure.is_passing && Instant::now() < until => {
                retries.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            Err(failure) => return Err(Some(failure)),
        }
    }
}
