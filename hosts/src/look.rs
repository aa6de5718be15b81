//! What is there? The server and its workers, for `warpsmith doctor --hosts`.

use crate::{message::Facts, server::Server};
use async_nats::jetstream::kv;
use bytes::Bytes;
use futures::StreamExt;
use std::{collections::BTreeMap, time::Duration};
use warpsmith::{
    exit::Trouble,
    hosts::{Address, Found},
};

/// Makes what is missing on the server, and says what is there.
///
/// # Errors
///
/// Where it cannot be reached, or not be used.
pub fn look(address: &Address) -> Result<Found, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Trouble::machine(format!("cannot start threads: {e}")))?;
    runtime.block_on(async {
        let server = Server::connect(address, "doctor").await?;
        server.set_up().await?;
        let workers = present(&server).await?;
        let info = server.client.server_info();
        let mut lines = vec![format!(
            "server     {}: nats-server {} with JetStream, messages of at most {} KiB",
            server.url,
            info.version,
            info.max_payload >> 10
        )];
        lines.extend(describe(&workers));
        Ok(Found { lines, able: !workers.is_empty() })
    })
}

/// The workers that were heard of lately.
///
/// # Errors
///
/// Where the server does not say.
pub async fn present(server: &Server) -> Result<Vec<Facts>, Trouble> {
    let store = server.workers().await?;
    let failed = |why: &dyn std::fmt::Display| Trouble::machine(format!("{}: {why}", server.url));
    let mut keys = store.keys().await.map_err(|e| failed(&e))?;
    let mut found = vec![];
    let now = clock(&store).await.map_err(|e| Trouble::machine(server.stores_nothing(&e)))?;
    while let Some(Ok(key)) = keys.next().await {
        if !key.starts_with("worker.") {
            continue;
        }
        let Ok(Some(entry)) = store.entry(key).await else { continue };
        if age(now, &entry) < Server::remembers() {
            found.extend(serde_json::from_slice::<Facts>(&entry.value));
        }
    }
    Ok(found)
}

/// What is written to see whether the server stores anything, in bytes: more than fits where a full disk has a page begun.
const PROBE: usize = 16 << 10;

/// What time it is by the server's clock: no other host's clock is asked for anything.
///
/// # Errors
///
/// Where the server does not say.
pub async fn clock(store: &kv::Store) -> Result<i64, String> {
    store.put("clock", Bytes::from_static(&[0; PROBE])).await.map_err(|e| e.to_string())?;
    let entry = store.entry("clock").await.map_err(|e| e.to_string())?;
    Ok(entry.map_or(0, |entry| entry.created.unix_timestamp()))
}

/// How long ago this was written, by the server's clock.
#[must_use]
pub fn age(now: i64, entry: &kv::Entry) -> Duration {
    Duration::from_secs(u64::try_from(now - entry.created.unix_timestamp()).unwrap_or(0))
}

/// A line for each class of each lane, and one for each worker.
fn describe(workers: &[Facts]) -> Vec<String> {
    let mut classes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for place in workers.iter().flat_map(|worker| worker.slots.values()) {
        for (lane, class) in &place.lanes {
            *classes.entry((lane, class)).or_default() += 1;
        }
    }
    if workers.is_empty() {
        return vec!["workers    none; on each host: warpsmith worker --hosts URL".to_owned()];
    }
    let class = |((lane, class), devices): (&(&str, &str), &usize)| format!("class      {class}: {devices} for {lane}");
    let worker = |worker: &Facts| {
        let Facts { name, host, version, key, slots, .. } = worker;
        let busy = slots.values().filter(|place| !place.doing.is_empty()).count();
        format!("worker     {name} on {host}: {} devices, {busy} busy; warpsmith {version}, key {key}", slots.len())
    };
    classes.iter().map(class).chain(workers.iter().map(worker)).collect()
}
