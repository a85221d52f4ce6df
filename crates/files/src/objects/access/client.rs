//! Requests to an S3 server, by the library `object_store`.
//!
//! Credentials and endpoint come from the environment of the host that sends the requests
//! (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`,
//! `AWS_CA_BUNDLE`), and never leave this module: no plan, task, report or message has them. The library's
//! retries are off: a request that fails is a result.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as Key};
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutPayload, RetryConfig,
};
use tokio::time::timeout;

use super::authorities;
use super::failure::Failure;
use super::guard::Guarded;

/// Credentials in place of the environment's. They are not shown.
#[derive(Clone)]
pub struct Keys {
    access: String,
    secret: String,
}

impl Keys {
    #[must_use]
    pub fn new(access: &str, secret: &str) -> Self {
        Self { access: access.to_owned(), secret: secret.to_owned() }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(...)")
    }
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct Access {
    /// In place of the environment's.
    pub endpoint: Option<String>,
    /// In place of the environment's.
    pub keys: Option<Keys>,
    /// Sends requests over HTTP to any host.
    pub allows_http: bool,
    /// Longest time of one request.
    pub within: Duration,
    /// Connections that are kept open.
    pub connections: usize,
}

/// A bucket on a server.
#[derive(Clone)]
pub struct Client {
    store: Arc<AmazonS3>,
    within: Duration,
    endpoint: String,
}

/// A page of a listing.
pub(crate) struct Page {
    /// Keys with the sizes of their objects.
    pub objects: Vec<(String, u64)>,
    pub next: Option<String>,
}

/// A body that was read.
pub(crate) struct Body {
    pub bytes: u64,
    /// From the request to the answer's head.
    pub first_byte: Duration,
}

/// Where credentials can come from beside the two keys.
const OTHER_CREDENTIALS: [Key; 3] =
    [Key::WebIdentityTokenFile, Key::ContainerCredentialsRelativeUri, Key::ContainerCredentialsFullUri];

impl Client {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// Credentials are missing, the endpoint is no URL, or would get requests unencrypted that was not
    /// allowed.
    pub fn connect(bucket: &str, access: &Access) -> Result<Self, String> {
        // The workspace's provider, where nothing else in this process has chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env();
        if let Some(keys) = &access.keys {
            builder = builder.with_access_key_id(&keys.access).with_secret_access_key(&keys.secret);
        }
        let given = |key: Key| builder.get_config_value(&key).filter(|value| !value.is_empty());
        let has_keys = given(Key::AccessKeyId).is_some() && given(Key::SecretAccessKey).is_some();
        if !has_keys && OTHER_CREDENTIALS.into_iter().all(|key| given(key).is_none()) {
            return Err("there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
                        environment (~/.aws is not read)"
                .to_owned());
        }
        let endpoint = access.endpoint.clone().or_else(|| given(Key::Endpoint));
        let allows_http = access.allows_http
            || given(Key::Client(object_store::ClientConfigKey::AllowHttp))
                .is_some_and(|value| value == "true");
        let is_http =
            endpoint.as_deref().map(|endpoint| check_endpoint(endpoint, allows_http)).transpose()?;
        // Reading and checking them takes longer than a request; HTTP does not need them.
        let authorities = if is_http == Some(true) { Vec::new() } else { authorities::of_environment()? };
        let options = ClientOptions::new().with_allow_http(is_http.unwrap_or(false));
        let guarded = Guarded { within: access.within, connections: access.connections, authorities };
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        builder = builder
            .with_client_options(options)
            .with_http_connector(guarded)
            .with_retry(retry)
            .with_bucket_name(bucket)
            // One request for one object, so that requests are what was asked for.
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| format!("the client cannot be made: {error}"))?;
        let endpoint = endpoint.unwrap_or_else(|| "Amazon S3".to_owned());
        Ok(Self { store: Arc::new(store), within: access.within, endpoint })
    }

    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    async fn ask<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Failure> {
        self.wait(async { request.await.map_err(|error| Failure::of(&error)) }).await
    }

    async fn wait<T>(&self, request: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let answer = timeout(self.within, request).await;
        answer.unwrap_or_else(|_| Err(Failure::timed_out(self.within.as_secs_f64())))
    }

    pub(crate) async fn put(&self, key: &str, chunks: impl Iterator<Item = Bytes>) -> Result<(), Failure> {
        let path = Path::from(key);
        self.ask(self.store.put(&path, chunks.collect::<PutPayload>())).await.map(drop)
    }

    /// Reads an object, whose length is compared with `wanted` if that is known.
    pub(crate) async fn get(&self, key: &str, wanted: Option<u64>) -> Result<Body, Failure> {
        let path = Path::from(key);
        let began = std::time::Instant::now();
        self.wait(async {
            let answer = self.store.get_opts(&path, GetOptions::default()).await;
            let answer = answer.map_err(|error| Failure::of(&error))?;
            let first_byte = began.elapsed();
            // By the head: a body of another length may not end within the run.
            let length = answer.meta.size;
            if let Some(wanted) = wanted.filter(|wanted| *wanted != length) {
                return Err(Failure::wrong_length(length, wanted));
            }
            let mut stream = answer.into_stream();
            let mut bytes = 0;
            while let Some(chunk) = stream.next().await {
                bytes += chunk.map_err(|error| Failure::of(&error))?.len() as u64;
            }
            Ok(Body { bytes, first_byte })
        })
        .await
    }

    /// The object's size.
    pub(crate) async fn head(&self, key: &str) -> Result<u64, Failure> {
        let path = Path::from(key);
        self.ask(self.store.head(&path)).await.map(|meta| meta.size)
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<(), Failure> {
        let path = Path::from(key);
        self.ask(self.store.delete(&path)).await
    }

    /// One request.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        max_keys: usize,
        next: Option<String>,
    ) -> Result<Page, Failure> {
        let options = PaginatedListOptions {
            max_keys: Some(max_keys),
            page_token: next,
            ..PaginatedListOptions::default()
        };
        let page = self.ask(self.store.list_paginated(Some(prefix), options)).await?;
        let objects = page.result.objects.into_iter();
        let objects = objects.map(|object| (object.location.to_string(), object.size)).collect();
        Ok(Page { objects, next: page.page_token })
    }

    /// Deletes many, a few at a time; the failures.
    pub(crate) async fn delete_all(&self, keys: Vec<String>) -> Vec<Failure> {
        let deletes = keys.into_iter().map(|key| async move { self.delete(&key).await.err() });
        stream::iter(deletes).buffer_unordered(32).filter_map(std::future::ready).collect().await
    }
}

/// Whether requests go over HTTP.
fn check_endpoint(endpoint: &str, allows_http: bool) -> Result<bool, String> {
    if endpoint.starts_with("https://") {
        return Ok(false);
    }
    let Some(rest) = endpoint.strip_prefix("http://") else {
        return Err(format!("AWS_ENDPOINT_URL: '{endpoint}' is no URL; write https://HOST[:PORT]"));
    };
    let authority = rest.split('/').next().unwrap_or(rest);
    if authority.contains('@') {
        return Err("AWS_ENDPOINT_URL: it must not have a user's name; set AWS_ACCESS_KEY_ID".to_owned());
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    let is_near = host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|ip| match ip {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        });
    if is_near || allows_http {
        return Ok(true);
    }
    Err(format!(
        "{endpoint} is not encrypted, and {host} is no private address; use https, or allow it (--allow-http)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_for_private_addresses_unless_it_is_allowed() {
        for near in ["http://127.0.0.1:9000", "http://localhost", "http://[::1]:1", "http://10.213.77.2:80/"]
        {
            assert_eq!(check_endpoint(near, false), Ok(true), "{near}");
        }
        assert_eq!(check_endpoint("https://s3.example.com", false), Ok(false));
        assert_eq!(check_endpoint("http://s3.example.com", true), Ok(true));
        for wrong in
            ["http://s3.example.com", "http://8.8.8.8:80", "s3.example.com", "http://user:key@127.0.0.1"]
        {
            assert!(check_endpoint(wrong, false).is_err(), "{wrong}");
        }
    }
}
