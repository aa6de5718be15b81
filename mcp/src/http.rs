//! Streamable HTTP: on this machine's own address, or for whoever has the token.

use crate::server::Tools;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use std::{convert::Infallible, fs, io::Write, net::SocketAddr, path::Path, sync::Arc};
use tokio::net::TcpListener;

/// Where the tools are.
const PATH: &str = "/mcp";
/// The shortest token that is one.
const SHORTEST: usize = 16;

type Answer = Response<BoxBody<Bytes, Infallible>>;
type Service = StreamableHttpService<Tools, LocalSessionManager>;

/// The token in a file.
pub(crate) fn token(file: &Path) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("--token-file: {}: {e}", file.display()))?;
    let token = text.trim().to_owned();
    if token.len() < SHORTEST || token.contains(char::is_whitespace) {
        return Err(format!("--token-file: {}: expected one word of at least {SHORTEST} characters", file.display()));
    }
    Ok(token)
}

/// Whether this address may be served.
pub(crate) fn allowed(address: SocketAddr, token: Option<&str>) -> Result<(), String> {
    if address.ip().is_loopback() || token.is_some() {
        return Ok(());
    }
    Err(format!(
        "--http {address}: others can reach that address, and the tools run programs here: name a token with --token-file, \
         or serve 127.0.0.1"
    ))
}

/// Serves until it is stopped.
pub(crate) async fn serve(address: SocketAddr, token: Option<String>, tools: Tools) -> Result<(), String> {
    let listener = TcpListener::bind(address).await.map_err(|e| format!("--http {address}: {e}"))?;
    let own = listener.local_addr().map_err(|e| format!("--http {address}: {e}"))?;
    let _ = writeln!(std::io::stderr().lock(), "warpsmith-mcp: at http://{own}{PATH}");
    let config = StreamableHttpServerConfig::default().enforce_origin_validation();
    // Whoever has the token may call the host what they like; without one it is this machine's own names alone.
    let config = if token.is_some() { config.disable_allowed_hosts() } else { config };
    let service: Service = StreamableHttpService::new(move || Ok(tools.clone()), Arc::default(), config);
    let token = token.map(Arc::<str>::from);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (service, token) = (service.clone(), token.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(service.clone(), token.clone(), request));
            // A connection that breaks is its client's loss.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(service: Service, token: Option<Arc<str>>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    if !is_known(token.as_deref(), &request) {
        return Ok(refusal(StatusCode::UNAUTHORIZED, "expected the header `Authorization: Bearer TOKEN`"));
    }
    if request.uri().path() != PATH {
        return Ok(refusal(StatusCode::NOT_FOUND, "the tools are at /mcp"));
    }
    Ok(service.handle(request).await)
}

/// Whether a request has the token, where there is one.
fn is_known<B>(token: Option<&str>, request: &Request<B>) -> bool {
    let Some(token) = token else { return true };
    let said = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    said.is_some_and(|said| same(said.as_bytes(), token.as_bytes()))
}

/// Whether two texts are the same, in a time that does not say where they differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn refusal(status: StatusCode, why: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_needs_a_token_and_who_lacks_it_is_unknown() {
        let at = |address: &str| allowed(address.parse().unwrap(), None);
        assert!(at("127.0.0.1:1").is_ok() && at("[::1]:1").is_ok());
        assert!(at("0.0.0.0:1").unwrap_err().contains("name a token with --token-file"));
        assert!(allowed("0.0.0.0:1".parse().unwrap(), Some("token")).is_ok());
        let with = |value: &str| Request::builder().header(AUTHORIZATION, value).body(()).unwrap();
        assert!(is_known(Some("secret-secret-se"), &with("Bearer secret-secret-se")));
        for other in ["Bearer secret-secret-sx", "Bearer secret", "secret-secret-se", "Bearer "] {
            assert!(!is_known(Some("secret-secret-se"), &with(other)), "{other}");
        }
        assert!(!is_known(Some("s"), &Request::new(())) && is_known(None, &Request::new(())));
    }
}
