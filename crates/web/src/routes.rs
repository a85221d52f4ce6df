//! All paths of the server.

use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use axum::{Router, middleware};

use crate::api::{
    assets, compare, console, events, hosts, job_events, jobs, metrics, plans, qos, runs, session, settings,
};
use crate::app::Shared;
use crate::guard::guard;

const BODY_BYTES_MAX: usize = 1 << 20;
const PREFIX: &str = "/api/v1";
const METRICS: &str = "/metrics";

/// A router under construction, and its routes: the description of the API is compared with them.
struct Builder {
    router: Router<Shared>,
    known: Vec<(&'static str, String)>,
}

impl Builder {
    fn add<H, T>(mut self, filter: MethodFilter, method: &'static str, path: String, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        self.router = self.router.route(&path, on(filter, handler));
        self.known.push((method, path));
        self
    }

    fn get<H: Handler<T, Shared>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(MethodFilter::GET, "get", format!("{PREFIX}{path}"), handler)
    }

    fn post<H: Handler<T, Shared>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(MethodFilter::POST, "post", format!("{PREFIX}{path}"), handler)
    }

    fn patch<H: Handler<T, Shared>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(MethodFilter::PATCH, "patch", format!("{PREFIX}{path}"), handler)
    }

    fn delete<H: Handler<T, Shared>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.add(MethodFilter::DELETE, "delete", format!("{PREFIX}{path}"), handler)
    }
}

/// Every route.
fn all() -> Builder {
    Builder { router: Router::new(), known: Vec::new() }
        .get("/session", session::show)
        .post("/session", session::open)
        .delete("/session", session::close)
        .get("/console", console::show)
        .get("/openapi.json", console::openapi)
        .get("/events", events::stream)
        .get("/workloads", plans::workloads)
        .get("/plans", plans::list)
        .post("/plans/check", plans::check)
        .get("/jobs", jobs::list)
        .post("/jobs", jobs::create)
        .get("/jobs/{id}", jobs::show)
        .delete("/jobs/{id}", jobs::remove)
        .post("/jobs/{id}/stop", jobs::stop)
        .get("/jobs/{id}/plan", jobs::plan)
        .get("/jobs/{id}/events", job_events::stream)
        .get("/runs", runs::list)
        .get("/runs/{id}", runs::show)
        .patch("/runs/{id}", runs::annotate)
        .delete("/runs/{id}", runs::remove)
        .get("/runs/{id}/report", runs::report)
        .get("/runs/{id}/export", runs::export)
        .get("/runs/{id}/plan", runs::plan)
        .get("/tags", runs::tags)
        .get("/compare", compare::show)
        .get("/hosts", hosts::list)
        .get("/settings", settings::list)
        .post("/settings/set", settings::set)
        .get("/settings/applied", settings::applied)
        .post("/settings/applied/{id}/keep", settings::keep)
        .post("/settings/applied/{id}/undo", settings::undo)
        .post("/advice", settings::advise)
        .get("/qos", qos::show)
        .post("/qos/check", qos::check)
        .post("/qos/apply", qos::apply)
        .post("/qos/clear", qos::clear)
        .add(MethodFilter::GET, "get", METRICS.to_owned(), metrics::show)
}

pub fn router(app: &Shared) -> Router {
    all()
        .router
        .fallback(assets::page)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app.clone())
}

#[cfg(test)]
mod tests;
