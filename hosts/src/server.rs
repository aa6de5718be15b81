//! The message server: reaching it, and what has to be there before jobs can travel.

use crate::message::{BLOBS, FOUND, JOBS, WORKERS, run_stream};
use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr,
    jetstream::{
        self, Context, kv,
        object_store::{self, ObjectStore},
        stream::{self, DiscardPolicy, RetentionPolicy, StorageType, Stream},
    },
};
use kernelbench::Hash;
use std::{fmt::Display, path::Path, time::Duration};
use warpsmith::{exit::Trouble, hosts::Address, key::without_credentials};

/// What a worker calls itself when it connects.
pub const WORKER: &str = "worker";
/// How long it may take to answer when it is first asked.
const PATIENCE: Duration = Duration::from_secs(5);
/// The oldest server that has what is asked of it.
const OLDEST: (u32, u32) = (2, 10);
/// How long what came of a run's jobs, and blobs, are kept on the server.
const KEPT: Duration = Duration::from_hours(24 * 14);
/// How long a worker that has fallen silent is remembered.
const REMEMBERED: Duration = Duration::from_mins(10);
/// The largest blob.
const LARGEST: usize = 64 << 20;

/// A server that answers.
#[derive(Clone)]
pub struct Server {
    /// Its streams.
    pub js: Context,
    /// The connection.
    pub client: Client,
    /// Its address, as people may see it.
    pub url: String,
}

impl Server {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Where it cannot be reached, lets nobody in by this word, is too old or has no streams: in one sentence.
    pub async fn connect(address: &Address, name: &str) -> Result<Self, Trouble> {
        let url = without_credentials(&address.url);
        let options = ConnectOptions::new()
            .name(format!("warpsmith {name}"))
            .connection_timeout(PATIENCE)
            .request_timeout(Some(PATIENCE))
            // Workers may not listen to what the server answers orchestrators.
            .custom_inbox_prefix(if name == WORKER { "_INBOX.worker" } else { "_INBOX.orchestrator" })
            .ping_interval(Duration::from_secs(10))
            .event_callback(note);
        let options = match &address.credentials {
            Some(file) => with_credentials(options, file)?,
            None => named_in(options, &address.url),
        };
        let connected = tokio::time::timeout(PATIENCE + Duration::from_secs(2), options.connect(&address.url)).await;
        let client = match connected {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(unreachable(&url, &error)),
            Err(_) => return Err(Trouble::machine(format!("{url}: the message server does not answer"))),
        };
        fitting(&client, &url)?;
        let js = jetstream::new(client.clone());
        Ok(Self { js, client, url })
    }

    /// Makes what is missing of the stream of jobs and the buckets, where it may.
    ///
    /// # Errors
    ///
    /// What is missing and cannot be made.
    pub async fn set_up(&self) -> Result<(), Trouble> {
        let jobs = stream::Config {
            name: JOBS.into(),
            subjects: vec!["jobs.>".into()],
            retention: RetentionPolicy::WorkQueue,
            // A job that waits or is under way is not taken in a second time.
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            storage: StorageType::File,
            allow_direct: true,
            ..stream::Config::default()
        };
        self.js.get_or_create_stream(jobs).await.map_err(|e| self.missing("the stream of jobs", &e))?;
        if self.js.get_key_value(WORKERS).await.is_err() {
            let config = kv::Config { bucket: WORKERS.into(), history: 1, max_age: KEPT, ..kv::Config::default() };
            self.js.create_key_value(config).await.map_err(|e| self.missing("the bucket of workers", &e))?;
        }
        for bucket in [BLOBS, FOUND] {
            if self.js.get_object_store(bucket).await.is_err() {
                let config =
                    object_store::Config { bucket: bucket.into(), max_age: KEPT, ..object_store::Config::default() };
                self.js.create_object_store(config).await.map_err(|e| self.missing("a bucket of blobs", &e))?;
            }
        }
        Ok(())
    }

    /// The stream of what came of a run's jobs; made where it is missing.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    pub async fn run(&self, run: &str) -> Result<Stream, Trouble> {
        let config = stream::Config {
            name: run_stream(run),
            subjects: vec![format!("runs.{run}.>")],
            max_age: KEPT,
            storage: StorageType::File,
            ..stream::Config::default()
        };
        self.js.get_or_create_stream(config).await.map_err(|e| self.missing("the stream of this run", &e))
    }

    /// The bucket of workers.
    ///
    /// # Errors
    ///
    /// Where nobody has made it, or this account may not look at it.
    pub async fn workers(&self) -> Result<kv::Store, Trouble> {
        self.js.get_key_value(WORKERS).await.map_err(|e| self.missing("the bucket of workers", &e))
    }

    /// A bucket of blobs.
    ///
    /// # Errors
    ///
    /// Where nobody has made it, or this account may not look at it.
    pub async fn blobs(&self, bucket: &str) -> Result<Blobs, Trouble> {
        let missing = |why: &dyn Display| self.missing("a bucket of blobs", why);
        let store = self.js.get_object_store(bucket).await.map_err(|e| missing(&e))?;
        let stream = self.js.get_stream_no_info(format!("OBJ_{bucket}")).await.map_err(|e| missing(&e))?;
        Ok(Blobs { store, stream, chunks: format!("$O.{bucket}.C") })
    }

    /// What is said of a server that is there and stores nothing.
    #[must_use]
    pub fn stores_nothing(&self, why: &dyn Display) -> String {
        format!(
            "{}: the message server stores nothing ({why}); its log says why: where its disk is full, make room there and \
             start it again",
            self.url
        )
    }

    /// How long a worker that has fallen silent is remembered.
    #[must_use]
    pub const fn remembers() -> Duration {
        REMEMBERED
    }

    fn missing(&self, what: &str, why: &dyn Display) -> Trouble {
        Trouble::machine(format!(
            "{}: {what} is not there, and this account cannot make it ({why}); `warpsmith doctor --hosts URL`, with an \
             account that may, makes what is missing",
            self.url
        ))
    }
}

/// What becomes of a connection that was there is told to whoever reads the log.
async fn note(event: Event) {
    match event {
        Event::Connected => tracing::info!("connected to the message server"),
        Event::Disconnected => tracing::warn!("the message server is gone; it is looked for"),
        other => tracing::warn!("the message server: {other}"),
    }
}

fn with_credentials(options: ConnectOptions, file: &Path) -> Result<ConnectOptions, Trouble> {
    let wrong = |why: &dyn Display| Trouble::usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| wrong(&format!("cannot read who asks: {e}")))?;
    if text.trim().starts_with("SU") {
        return Ok(options.nkey(text.trim().to_owned()));
    }
    options.credentials(&text).map_err(|e| wrong(&format!("expected credentials or the seed of an nkey: {e}")))
}

/// Who asks, where the address says it: the library itself does not look there.
fn named_in(options: ConnectOptions, url: &str) -> ConnectOptions {
    let Ok(address) = url.parse::<ServerAddr>() else { return options };
    match (address.username(), address.password()) {
        (Some(user), Some(password)) => options.user_and_password(user.to_owned(), password.to_owned()),
        (Some(token), None) => options.token(token.to_owned()),
        _ => options,
    }
}

fn unreachable(url: &str, error: &async_nats::ConnectError) -> Trouble {
    let told = match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => format!(
            "{url}: the message server does not let this account in; --hosts-credentials FILE says who asks, or the URL \
             does (nats://USER:PASSWORD@HOST:4222)"
        ),
        ConnectErrorKind::ServerParse => {
            return Trouble::usage(format!("{url}: expected an address such as nats://head:4222 or tls://head:4222"));
        }
        _ => format!(
            "{url}: no message server can be reached there ({error}); is the address right, and does `nats-server -js` run \
             there?"
        ),
    };
    Trouble::machine(told)
}

/// Whether a server has what is asked of it.
fn fitting(client: &Client, url: &str) -> Result<(), Trouble> {
    let info = client.server_info();
    let mut numbers = info.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < OLDEST {
        let (major, minor) = OLDEST;
        return Err(Trouble::machine(format!(
            "{url}: nats-server {} is too old: {major}.{minor} or newer is needed",
            info.version
        )));
    }
    if !info.jetstream {
        return Err(Trouble::machine(format!(
            "{url}: this message server keeps no streams: start it with JetStream (nats-server -js)"
        )));
    }
    Ok(())
}

/// A bucket of blobs.
#[derive(Clone)]
pub struct Blobs {
    store: ObjectStore,
    /// The stream that it lies in, and the subject of its chunks.
    stream: Stream<()>,
    chunks: String,
}

impl Blobs {
    /// Puts a blob where whoever has its hash can get it.
    ///
    /// # Errors
    ///
    /// What kept it from being put.
    pub async fn put(&self, content: &[u8]) -> Result<Hash, String> {
        let hash = Hash::of(content);
        if self.store.info(hash.as_str()).await.is_ok_and(|info| info.size == content.len()) {
            return Ok(hash);
        }
        let (name, mut rest) = (hash.as_str(), content);
        let put = self.store.put(name, &mut rest).await;
        put.map_err(|e| format!("the blob {} cannot be put: {e}", hash.short()))?;
        Ok(hash)
    }

    /// Gets a blob, and looks whether it is what it is called. Its chunks are read one by one: an object that is read as a
    /// whole leaves a consumer behind for a while, and a server has no more than so many of them.
    ///
    /// # Errors
    ///
    /// Where it is not there, not whole, too large or another than its name says.
    pub async fn get(&self, hash: &Hash) -> Result<Vec<u8>, String> {
        let failed = |why: &dyn Display| format!("the blob {}: {why}", hash.short());
        let info = self.store.info(hash.as_str()).await.map_err(|e| failed(&e))?;
        if info.deleted {
            return Err(failed(&"it is gone"));
        }
        if info.size > LARGEST {
            return Err(failed(&format!("it has {} bytes, the limit is {LARGEST}", info.size)));
        }
        let (subject, mut content, mut next) = (format!("{}.{}", self.chunks, info.nuid), vec![], None);
        for _ in 0..info.chunks {
            let chunk = self.stream.direct_get_next_for_subject(&subject, next).await.map_err(|e| failed(&e))?;
            content.extend_from_slice(&chunk.payload);
            if content.len() > LARGEST {
                return Err(failed(&format!("it has more than {LARGEST} bytes")));
            }
            next = Some(chunk.sequence + 1);
        }
        let is = Hash::of(&content);
        if is != *hash {
            return Err(format!("the blob {} does not have its hash: what is there has {}", hash.short(), is.short()));
        }
        Ok(content)
    }
}
