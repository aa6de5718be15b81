//! What is answered to whom: a few pages, by GET, to a browser on this machine.
//!
//! A page elsewhere may have its own name resolve to this machine and then ask as if it were one of ours: a request whose
//! `Host` is another name than this machine's own is refused.

use super::{Live, keep_looking, stream};
use crate::{exit::Trouble, report::file};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{self, HeaderValue},
    http::uri::Authority,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

/// How long a browser may take to say what it wants.
const HEAD: Duration = Duration::from_secs(10);
/// Connections at the same time.
const CONNECTIONS: usize = 64;
/// What the live page may load: its own script and style, nothing from elsewhere and nothing that stands in the page.
const OURS: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                    form-action 'none'; frame-ancestors 'none'";
/// What a report may load: nothing.
const REPORT: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// What this machine is called in its own browser.
const OUR_NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

type Body = BoxBody<Bytes, Infallible>;

/// A page that is served for as long as this lives.
pub struct Served {
    port: u16,
    _work: JoinSet<()>,
}

impl Served {
    /// Where it is: `http://127.0.0.1:4720/`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

/// Serves the page at this port of 127.0.0.1, and nowhere else; 0 is one that is free.
///
/// # Errors
///
/// If the port is taken.
pub async fn serve(live: Arc<Live>, port: u16) -> Result<Served, Trouble> {
    let cannot = |e: std::io::Error| {
        Trouble::usage(format!("port {port} of 127.0.0.1 cannot be had: {e}; name another with --port, or none"))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(cannot)?;
    let port = listener.local_addr().map_err(cannot)?.port();
    let mut work = JoinSet::new();
    work.spawn(keep_looking(live.clone()));
    work.spawn(accept(listener, live));
    Ok(Served { port, _work: work })
}

async fn accept(listener: TcpListener, live: Arc<Live>) {
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let live = live.clone();
                connections.spawn(async move {
                    converse(stream, live).await;
                    drop(place);
                });
            }
            // Too many files are open, or the other side went away: neither lasts.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(stream: TcpStream, live: Arc<Live>) {
    let service = service_fn(move |request| {
        let live = live.clone();
        async move { Ok::<_, Infallible>(answer(live, &request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // Whoever goes away in the middle is no reason to say anything.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(live: Arc<Live>, request: &Request<Incoming>) -> Response<Body> {
    if let Some(refusal) = refuse(request) {
        return refusal;
    }
    match request.uri().path() {
        "/" => page("text/html", include_str!("page.html")),
        "/live.js" => page("text/javascript", include_str!("page.js")),
        "/live.css" => page("text/css", include_str!("page.css")),
        "/report.css" => page("text/css", include_str!("../report/report.css")),
        "/events" => {
            let frames = stream::events(live).await.map(|bytes| Ok(Frame::data(bytes)));
            respond(StatusCode::OK, "text/event-stream", BodyExt::boxed(StreamBody::new(frames)))
        }
        path => {
            let path = path.to_owned();
            let made = tokio::task::spawn_blocking(move || made(&live, &path)).await;
            made.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "this could not be made: our mistake"))
        }
    }
}

/// What is made when it is asked for. An address holds numbers, never a name or a path.
fn made(live: &Live, path: &str) -> Response<Body> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let number = |text: &str| text.parse::<usize>().ok();
    let found = match parts.as_slice() {
        ["state"] => return respond(StatusCode::OK, "application/json", full(live.state().to_string())),
        ["run", run] => number(run).and_then(|run| live.run(run)).map(|run| {
            let mut text = vec![];
            file::page(&run, &mut text).map(|()| Some(text))
        }),
        ["task", task] => number(task)
            .and_then(|task| live.task(task))
            .map(|(run, task)| file::task(&run, &task).map(|text| Some(text.into_bytes()))),
        ["task", task, "round", round] => number(task)
            .and_then(|task| live.task(task).zip(round.parse().ok()))
            .map(|((run, task), round)| file::round(&run, &task, round).map(|text| text.map(String::into_bytes))),
        _ => None,
    };
    match found {
        Some(Ok(Some(text))) => {
            let mut response = respond(StatusCode::OK, "text/html", full(text));
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(REPORT));
            response
        }
        Some(Err(why)) => plain(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
        Some(Ok(None)) | None => plain(StatusCode::NOT_FOUND, "there is no such page"),
    }
}

/// Why a request is not answered.
fn refuse(request: &Request<Incoming>) -> Option<Response<Body>> {
    if request.method() != Method::GET {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "this page is only read: GET");
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        return Some(refusal);
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let is_ours = hosts.next().is_none() && host.is_some_and(is_this_machine);
    let named = request.uri().authority().is_none_or(|authority| is_this_machine(authority.as_str()));
    (!is_ours || !named).then(|| {
        plain(
            StatusCode::FORBIDDEN,
            "only a browser on this machine is answered: open the page as http://127.0.0.1:PORT/ or http://localhost:PORT/",
        )
    })
}

/// Whether a name with or without a port is this machine's own.
fn is_this_machine(host: &str) -> bool {
    let authority = host.parse::<Authority>().ok().filter(|_| !host.contains('@'));
    authority.is_some_and(|authority| OUR_NAMES.iter().any(|ours| authority.host().eq_ignore_ascii_case(ours)))
}

fn page(kind: &'static str, text: &'static str) -> Response<Body> {
    respond(StatusCode::OK, kind, full(text))
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    respond(status, "text/plain", full(format!("{text}\n")))
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

fn respond(status: StatusCode, kind: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let kind = HeaderValue::from_str(&format!("{kind}; charset=utf-8"));
    headers.insert(header::CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("text/plain")));
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, OURS),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
