//! How a browser is told: as server-sent events, first how things stand and then what changes.

use super::Live;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// After so long without a change it is said that the connection stands.
const QUIET: Duration = Duration::from_secs(10);

/// One event: JSON has no line breaks of its own.
pub(super) fn told(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// How things stand, and then every change.
pub(super) async fn events(live: Arc<Live>) -> impl Stream<Item = Bytes> {
    let (state, changes) = follow(&live).await;
    let first = stream::once(async move { Bytes::from([&b"retry: 1000\n"[..], &state].concat()) });
    first.chain(stream::unfold((live, changes), next))
}

async fn follow(live: &Arc<Live>) -> (Bytes, Receiver<Bytes>) {
    let of = live.clone();
    let followed = tokio::task::spawn_blocking(move || of.follow()).await;
    match followed {
        Ok((state, changes)) => (told("state", &state), changes),
        Err(_) => (Bytes::new(), live.changes.subscribe()),
    }
}

/// The next thing to say. Who was too slow to hear every change is told anew how things stand.
async fn next((live, mut changes): (Arc<Live>, Receiver<Bytes>)) -> Option<(Bytes, (Arc<Live>, Receiver<Bytes>))> {
    match tokio::time::timeout(QUIET, changes.recv()).await {
        Ok(Ok(change)) => Some((change, (live, changes))),
        Ok(Err(RecvError::Lagged(_))) => {
            let (state, changes) = follow(&live).await;
            Some((state, (live, changes)))
        }
        Ok(Err(RecvError::Closed)) => None,
        Err(_) => Some((Bytes::from_static(b": still here\n\n"), (live, changes))),
    }
}
