//! Where is the endpoint, and what is shown to it?

use super::key::{Key, scrub_lookalikes};
use crate::llm::AskError;
use async_openai::{Client, config::OpenAIConfig, error::OpenAIError, middleware::HttpRequestFactory};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, ClientBuilder, Response, Url, redirect};
use std::time::Duration;

/// An address, a key, and a pool of connections.
pub(super) struct Connection {
    http: reqwest::Client,
    config: OpenAIConfig,
    key: Option<Key>,
    bearer: Option<HeaderValue>,
    place: String,
}

impl Connection {
    pub(super) fn new(base_url: &str, key: Option<Key>, timeout: Duration) -> Result<Self, AskError> {
        let base = base_url.trim().trim_end_matches('/').trim_end_matches("/chat/completions");
        let url = address(base)?;
        Ok(Self {
            http: http(&url, timeout)?,
            config: OpenAIConfig::new().with_api_base(base).with_api_key("").with_org_id("").with_project_id(""),
            bearer: key.as_ref().map(Key::bearer).transpose()?,
            key,
            place: url.as_str().trim_end_matches('/').to_owned(),
        })
    }

    /// A client of this endpoint. It knows no key.
    pub(super) fn client(&self) -> Client<OpenAIConfig> {
        Client::build(self.http.clone(), self.config.clone())
    }

    /// A request to this path under the address; it knows no key either.
    #[cfg(feature = "batch-api")]
    pub(super) fn request(
        &self,
        path: &str,
        make: impl Fn(&reqwest::Client, &str) -> reqwest::RequestBuilder + Send + Sync + 'static,
    ) -> HttpRequestFactory {
        let (http, url) = (self.http.clone(), format!("{}{path}", self.place));
        HttpRequestFactory::new(move || std::future::ready(make(&http, &url).build().map_err(OpenAIError::Reqwest)))
    }

    /// Sends a request with the key, if there is one, and waits for the head of the answer.
    pub(super) async fn send(&self, request: &HttpRequestFactory) -> Result<Response, OpenAIError> {
        let mut request = request.build().await?;
        request.headers_mut().remove(AUTHORIZATION);
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        self.http.execute(request).await.map_err(OpenAIError::Reqwest)
    }

    /// The address as it may be shown.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// A text from outside, without secrets.
    pub(super) fn scrub(&self, text: &str) -> String {
        let text = scrub_lookalikes(text);
        self.key.as_ref().map_or(text.clone(), |key| key.scrub(&text))
    }

    /// An answer, without the key.
    pub(super) fn scrub_reply(&self, text: String) -> String {
        match &self.key {
            Some(key) => key.scrub_reply(text),
            None => text,
        }
    }
}

fn address(base: &str) -> Result<Url, AskError> {
    let wrong = |why: String| {
        AskError::Refused(format!("the endpoint's address {why}; one like https://api.openai.com/v1 was expected"))
    };
    let url = Url::parse(base).map_err(|e| wrong(format!("is wrong: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("begins with {}:", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("holds a user, a query or a fragment".into()));
    }
    Ok(url)
}

fn builder(url: &Url, timeout: Duration) -> ClientBuilder {
    let builder = reqwest::Client::builder()
        .connect_timeout(timeout.min(Duration::from_secs(15)))
        .redirect(redirect::Policy::none());
    let here = url.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
    if here { builder.no_proxy() } else { builder }
}

/// The system's certificates come first, for the sake of proxies that sign anew; where there are none, Mozilla's do.
fn http(url: &Url, timeout: Duration) -> Result<reqwest::Client, AskError> {
    // Fails where another has been chosen before, which then counts.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder(url, timeout).build().or_else(|first| {
        let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().filter_map(|der| Certificate::from_der(der).ok());
        builder(url, timeout).tls_certs_only(roots).build().map_err(|_| {
            AskError::Refused(format!(
                "no TLS connection can be made on this machine: {first}; install its ca-certificates"
            ))
        })
    })
}
