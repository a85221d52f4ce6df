//! Answers where a report was asked for: the pages show them in a frame.

use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, header};

use crate::error::ApiError;
use crate::security::headers::set_report;

/// What a frame of the pages may show.
pub fn framed(page: impl IntoResponse) -> Response {
    let mut answer = page.into_response();
    set_report(answer.headers_mut());
    answer
}

/// An error: a page in the frame, and for a client as any other error.
pub fn problem(error: ApiError, headers: &HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok());
    if accepted.is_some_and(|kinds| kinds.contains("text/html")) {
        framed((error.status, Html(problem_page(&error.message))))
    } else {
        error.into_response()
    }
}

fn problem_page(message: &str) -> String {
    let text = message.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>kagiri</title><p>{text}</p></html>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_that_fails_says_so_as_text() {
        assert!(problem_page("no run <x> & y").contains("<p>no run &lt;x> &amp; y</p>"));
    }
}
