//! Addresses of content, and the places to which servers redirect.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stream::http;
use stream::http::url::Url;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (text, location) = text.split_once('\n').unwrap_or((&text, ""));
    let Ok(url) = Url::parse(text) else { return };
    assert_eq!(Url::parse(&url.to_string()).as_ref(), Ok(&url), "it reads back differently");
    for url in [Ok(url.clone()), url.join(location), Ok(url.index())].into_iter().flatten() {
        let request = http::get(&url, 0, None);
        // Nothing in an address may end a line of the request that is made of it.
        assert_eq!(request.iter().filter(|&&byte| byte == b'\n').count(), 7, "{url}");
        assert!(url.target().starts_with('/') && url.port() > 0);
    }
});
